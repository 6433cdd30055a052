// Package live shows what the ranks of a running job do. A Tracker makes a View of the metrics that
// the ranks report (introspect.Metrics). A View has, for each rank, the rates since the last View,
// the current call, and the state of the rails; the worst rank comes first. Screen draws a View for
// a terminal, and Exporter serves the counters to Prometheus.
//
// To answer Prometheus, a rank holds its lock for a moment. To answer for a View, it also stops its
// process while it writes its stacks, which show the current call.
package live
