// transform_lanes.hpp - transforms eight lanes wide, in two passes over memory.
//
// Problem: a butterfly costs two nanoseconds with eight in step; then tables of twiddles as long as the data, and a trip
// over memory for every few layers, would cost as much as the arithmetic.
// Design: n = rows x columns, both about sqrt n (D. Bailey, "FFTs in external or hierarchical memory", 1990). A down
// network on the whole is one on each column, then a factor w^-(q p) (the twist; q: the column's frequency, p: the
// column), then one on each row; up is the mirror. A task takes eight neighbouring columns, or eight rows, into a cache
// as Loose lanes and walks all their layers there. Tables are of sqrt n: the powers of a task's twist are made on the
// spot, once for all the arrays that go through it.
//   columns:  x[s columns + p], s < rows, for p = 8 g .. 8 g + 7
//   rows:     those of frequencies q = 8 g .. 8 g + 7. Frequency q lies in row rev(q)
// Between the passes arrays hold values below 2 p, in N words.
#pragma once
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cpu/domain_lanes.hpp"
#include "cpu/pool.hpp"
#include "cpu/workspace.hpp"
#include "ntt.cuh"

// Working memory of one task. Lent by a shelf, which makes as many as there are tasks at once.
template <class P>
struct LaneScratch {
    Workspace<Lanes<P>> twist;
    Workspace<Loose<P>> x, y, z;
    explicit LaneScratch(size_t n)
        : twist(workspace<Lanes<P>>(n)), x(workspace<Loose<P>>(n)), y(workspace<Loose<P>>(n)), z(workspace<Loose<P>>(n)) {}
};

template <class P>
class LaneShelf {
public:
    explicit LaneShelf(size_t n) : n_(n) {}
    std::unique_ptr<LaneScratch<P>> take() {
        std::lock_guard<std::mutex> lock(mutex_);
        if (free_.empty()) return std::make_unique<LaneScratch<P>>(n_);
        auto scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
    }
    void put(std::unique_ptr<LaneScratch<P>> scratch) {
        std::lock_guard<std::mutex> lock(mutex_);
        free_.push_back(std::move(scratch));
    }

private:
    const size_t n_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<LaneScratch<P>>> free_;
};

template <class P>
class LaneTransform {
public:
    using Fr = Field<P>;
    using Vector = Loose<P>;
    using Scratch = LaneScratch<P>;

    explicit LaneTransform(const LaneDomain<P>& domain) : d_(domain), network_(d_.network()), shelf_(d_.columns) {}

    // work(first column, scratch) for all groups of columns; the like for rows, work(first frequency, scratch).
    template <class Work>
    void columns(Work work) {
        each_group(d_.columns, work);
    }
    template <class Work>
    void rows(Work work) {
        each_group(d_.rows, work);
    }

    // ratio^q in row rev(q), or in natural order.
    void twist_by_row(const Fr* ratio, Scratch& s) const { powers(ratio, s.twist.get(), d_.log_rows, true); }
    void twist_by_column(const Fr* ratio, Scratch& s) const { powers(ratio, s.twist.get(), d_.log_columns, false); }

    void take_columns(const Fr* from, size_t p, Vector* x) const {
        for (size_t s = 0; s < d_.rows; ++s, from += d_.columns) {
            prefetch<0>(from + AHEAD * d_.columns + p);
            x[s] = Lanes<P>::gather_from(from + p);
        }
    }
    void take_rows(const Fr* from, size_t q, Vector* x) const {
        const uint64_t* row[8];
        for (int l = 0; l < 8; ++l) row[l] = from[row_of_frequency(q + l) * d_.columns].v;
        for (size_t p = 0; p < d_.columns; ++p, advance(row)) x[p] = Lanes<P>::gather_from(row);
    }

    // mod p, for others to read.
    void put_columns(const Vector* x, Fr* to, size_t p) const {
        for (size_t s = 0; s < d_.rows; ++s, to += d_.columns) {
            prefetch<1>(to + AHEAD * d_.columns + p);
            modulo_r::canonical(x[s]).scatter_to(to + p);
        }
    }

    // The first half of a down network on columns at x, with the twist, into `to`; `network`: by the root or its inverse.
    void down_columns(const LaneNetwork<P>& network, const Scratch& s, Vector* x, Fr* to, size_t p) const {
        network.template walk<true, false>(x, d_.rows, [&](Vector* y, size_t at, size_t size) {
            for (size_t i = 0; i < size; ++i) {
                Fr* row = to + (at + i) * d_.columns + p;
                prefetch<1>(row + size * d_.columns);  // of the next piece
                (modulo_r::settled(y[i]) * s.twist[at + i]).carried().scatter_to(row);
            }
        });
    }
    // The second half, on rows at x: finish(value, place in the row) goes to its natural place.
    template <class Finish>
    void down_rows(const LaneNetwork<P>& network, Vector* x, Fr* to, size_t q, Finish finish) const {
        network.template walk<true, false>(x, d_.columns, [&](Vector* y, size_t at, size_t size) {
            for (size_t i = 0; i < size; ++i) {
                size_t j = reverse_bits(static_cast<uint32_t>(at + i), d_.log_columns);
                modulo_r::canonical(finish(y[i], at + i)).scatter_to(to + j * d_.rows + q);
            }
        });
    }
    // The end of one transform and the beginning of the next, on rows: down, factors, up, twist.
    void turn_rows(const Scratch& s, Vector* x, const Factor<P>* factor, Fr* to, size_t q) const {
        network_.template walk<true, true>(x, d_.columns, [&](Vector* y, size_t at, size_t size) {
            for (size_t i = 0; i < size; ++i) y[i] = modulo_r::times(y[i], Spread<P>(factor[at + i]));
        });
        uint64_t* row[8];
        for (int l = 0; l < 8; ++l) row[l] = to[row_of_frequency(q + l) * d_.columns].v;
        for (size_t p = 0; p < d_.columns; ++p, advance(row))
            (modulo_r::settled(x[p]) * s.twist[p]).carried().scatter_to(row);
    }
    void up_columns(Vector* x) const {
        network_.template walk<false, true>(x, d_.rows, [](Vector*, size_t, size_t) {});
    }

    const LaneNetwork<P>& network() const { return network_; }

private:
    template <class Work>
    void each_group(size_t n, Work work) {
        Pool::instance().run(n / 8, [&](size_t group) {
            auto scratch = shelf_.take();
            work(8 * group, *scratch);
            shelf_.put(std::move(scratch));
        });
    }
    size_t row_of_frequency(size_t q) const { return reverse_bits(static_cast<uint32_t>(q), d_.log_rows); }
    template <class Word>
    static void advance(Word* row[8]) {
        for (int l = 0; l < 8; ++l) row[l] += P::N;
    }
    // Eight elements of a column's row are asked for before they are wanted: each row lies in another page, and no
    // processor guesses that. 10 % of a quotient of 2^20. Beyond the end of an array nothing happens.
    static constexpr size_t AHEAD = 12;  // rows
    template <int WRITE>
    static VEC void prefetch(const Fr* x) {
        for (size_t line = 0; line < 8 * sizeof(Fr); line += 64)
            __builtin_prefetch(reinterpret_cast<const char*>(x) + line, WRITE);
    }

    static void powers(const Fr* ratio, Lanes<P>* t, int bits, bool reversed) {
        Lanes<P> step[LaneDomain<P>::MAX_LOG];
        step[0] = Lanes<P>::gather_from(ratio);
        for (int j = 1; j < bits; ++j) step[j] = (step[j - 1] * step[j - 1]).carried();
        t[0] = Lanes<P>::one();
        for (int j = 0; j < bits; ++j) {
            const Lanes<P> by = step[reversed ? bits - 1 - j : j];
            for (size_t half = size_t(1) << j, k = 0; k < half; ++k) t[half + k] = (t[k] * by).carried();
        }
    }

    const LaneDomain<P>& d_;
    const LaneNetwork<P> network_;
    LaneShelf<P> shelf_;
};

// -- what transform.hpp does with them; arguments as there --

template <class Fr>
bool by_lanes(int log_n) {
    using Domain = LaneDomain<typename Fr::Params>;
    return log_n >= Domain::MIN_LOG && log_n <= Domain::MAX_LOG;
}

// Up to the values on the odd coset: then finish(columns at x, first column, scratch), x being A B - C, plain, below 6 p.
template <class P, class Finish>
void numerator_by_lanes(LaneTransform<P>& t, const LaneCoset<P>& coset, Field<P>* a, Field<P>* b, Field<P>* c,
                        Finish finish) {
    const size_t rows = coset.domain->rows;
    t.columns([&](size_t p, LaneScratch<P>& s) {
        Loose<P>*x = s.x.get(), *y = s.y.get(), *z = s.z.get();
        t.twist_by_row(&coset.there[p], s);
        t.take_columns(a, p, x);
        t.take_columns(b, p, y);
        for (size_t i = 0; i < rows; ++i) z[i] = x[i].carried() * y[i].carried();
        t.down_columns(t.network(), s, x, a, p);
        t.down_columns(t.network(), s, y, b, p);
        t.down_columns(t.network(), s, z, c, p);
    });
    t.rows([&](size_t q, LaneScratch<P>& s) {
        t.twist_by_column(&coset.up[q], s);
        for (Field<P>* array : {a, b, c}) {
            t.take_rows(array, q, s.x.get());
            t.turn_rows(s, s.x.get(), (array == c ? coset.of_c : coset.of_ab).data(), array, q);
        }
    });
    t.columns([&](size_t p, LaneScratch<P>& s) {
        Loose<P>*x = s.x.get(), *y = s.y.get(), *z = s.z.get();
        for (auto [array, v] : {std::pair(a, x), std::pair(b, y), std::pair(c, z)}) {
            t.take_columns(array, p, v);
            t.up_columns(v);
        }
        for (size_t i = 0; i < rows; ++i)
            x[i] = modulo_r::plus_multiple<4>(modulo_r::settled(x[i]) * modulo_r::settled(y[i]) - z[i]);
        finish(x, p, s);
    });
}

template <class P>
void circom_quotient_by_lanes(Field<P>* a, Field<P>* b, Field<P>* c, int log_n, uint64_t nqr) {
    auto coset = LaneCoset<P>::get(nqr, log_n);
    LaneTransform<P> t(*coset->domain);
    numerator_by_lanes<P>(t, *coset, a, b, c, [&](Loose<P>* x, size_t p, LaneScratch<P>&) { t.put_columns(x, a, p); });
}

template <class P>
void bellman_quotient_by_lanes(Field<P>* a, Field<P>* b, Field<P>* c, int log_n, uint64_t nqr) {
    auto coset = LaneCoset<P>::get(nqr, log_n);
    LaneTransform<P> t(*coset->domain);
    numerator_by_lanes<P>(t, *coset, a, b, c, [&](Loose<P>* x, size_t p, LaneScratch<P>& s) {
        for (size_t i = 0; i < coset->domain->rows; ++i) x[i] = modulo_r::reduced(x[i]);
        t.twist_by_row(&coset->back[p], s);
        t.down_columns(t.network(), s, x, c, p);
    });
    t.rows([&](size_t q, LaneScratch<P>& s) {
        t.take_rows(c, q, s.x.get());
        t.down_rows(t.network(), s.x.get(), a, q, [&](const Loose<P>& x, size_t at) {
            return modulo_r::times(x, Spread<P>(coset->of_back[at]));
        });
    });
}

// x[k] <- scale sum_j x[j] w^(j k), natural order in and out, or with 1/w. By way of a second array.
template <class P>
void plain_transform_by_lanes(Field<P>* x, int log_n, uint64_t nqr, bool inverse, const Field<P>& scale) {
    auto domain = LaneDomain<P>::get(nqr, log_n);
    LaneTransform<P> t(*domain);
    const LaneNetwork<P> network((inverse ? domain->by_inverse_w : domain->by_w).data(), nullptr);
    const auto ratios = twist_ratios<P>(Field<P>::one(), inverse ? domain->inverse_w : domain->w, domain->columns);
    const Factor<P> factor = Factor<P>::of(scale);
    const auto between = workspace<Field<P>>(size_t(1) << log_n);
    t.columns([&](size_t p, LaneScratch<P>& s) {
        t.twist_by_row(&ratios[p], s);
        t.take_columns(x, p, s.x.get());
        t.down_columns(network, s, s.x.get(), between.get(), p);
    });
    t.rows([&](size_t q, LaneScratch<P>& s) {
        t.take_rows(between.get(), q, s.x.get());
        t.down_rows(network, s.x.get(), x, q, [&](const Loose<P>& v, size_t) {
            return scale == Field<P>::one() ? v : modulo_r::times(v, Spread<P>(factor));
        });
    });
}
