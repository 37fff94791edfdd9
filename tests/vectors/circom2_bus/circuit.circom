pragma circom 2.2.0;
bus Point(n) { signal x[n]; signal y; }
template Sum() {
  input Point(2) pts[2];
  input Point(1) one;
  signal input k;
  signal output out;
  log("secret is", k);
  assert(k != 13);
  signal t <== k * one.y;
  t === one.x[0];
  out <== t + pts[0].x[0] + 2*pts[0].x[1] + 3*pts[0].y + 4*pts[1].x[0] + 5*pts[1].x[1]+ 6*pts[1].y;
}
template Main() { input Point(2) pts[2]; input Point(1) one; signal input k; signal output out; component s = Sum(); s.pts <== pts; s.one <== one; s.k <== k; out <== s.out; }
component main {public [k]} = Main();
