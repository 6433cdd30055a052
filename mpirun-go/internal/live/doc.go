// Package live shows what the ranks of a running job do. A Tracker makes a View of what the ranks
// have told (introspect.Metrics): for each rank the rates since the last View, what it does, and
// the state of its rails, the worst rank first. Screen draws a View for a terminal, and Exporter
// serves the counters to Prometheus.
//
// The answers for Prometheus cost a rank its lock for a moment. Those for a View say also what the
// rank does, for which its process stops while its stacks are written.
package live
