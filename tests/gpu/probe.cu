// probe.cu - one field operation per kernel, for test_counts.py to count what it compiles to.
#define CUZKD_INLINE
#include "module.cuh"

using Fq = Curve::Fq;
using Fq2 = Curve::Fq2;

// Operands differ from lane to lane, else the compiler keeps them in registers of the warp.
#define PROBE(name, F, result)                            \
    KERNEL name(F* v) {                                   \
        v += threadIdx.x;                                 \
        F a = v[0], b = v[32], c = v[64], d = v[96];      \
        v[0] = result;                                    \
    }
PROBE(fr_none, Fr, b)
PROBE(fr_add, Fr, a + b)
PROBE(fr_sub, Fr, a - b)
PROBE(fr_neg, Fr, a.neg())
PROBE(fr_mul, Fr, a * b)
PROBE(fr_sqr, Fr, a.sqr())
PROBE(fr_to_canonical, Fr, a.to_canonical())
PROBE(fq_none, Fq, b)
PROBE(fq_add, Fq, a + b)
PROBE(fq_sub, Fq, a - b)
PROBE(fq_neg, Fq, a.neg())
PROBE(fq_mul, Fq, a * b)
PROBE(fq_sqr, Fq, a.sqr())
PROBE(fq_to_canonical, Fq, a.to_canonical())
PROBE(fq_mul_add, Fq, Fq::mul_add(a, b, c, d))
PROBE(fq_mul_sub, Fq, Fq::mul_sub(a, b, c, d))
PROBE(fq2_none, Fq2, b)
PROBE(fq2_mul, Fq2, a * b)
PROBE(fq2_sqr, Fq2, a.sqr())

// What must be found where it is: more words than registers, and a product whose pairs a literal breaks apart.
KERNEL __launch_bounds__(1024) spilling(Fq2* v) {
    v += threadIdx.x;
    Fq2 x[4];
    UNROLL for (int i = 0; i < 4; ++i) x[i] = v[32 * i];
    UNROLL for (int i = 0; i < 4; ++i) x[i] = x[i] * x[(i + 1) & 3] + x[(i + 2) & 3];
    UNROLL for (int i = 0; i < 4; ++i) v[32 * i] = x[i];
}
