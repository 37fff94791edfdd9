// gpu/group.cuh - the points that one compiled module is about.
#pragma once
#include "module.cuh"

using Group = CUZKD_GROUP<Curve>;
using Point = Affine<Group::F>;
using Sum = Xyzz<Group::F>;
