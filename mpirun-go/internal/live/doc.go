// Package live shows what the ranks of a running job do. A Tracker makes a View of what the ranks
// have told (introspect.Metrics): for each rank the rates since the last View, what it does, and
// the state of its rails, the worst rank first. Screen draws a View for a terminal, and Exporter
// serves the counters to Prometheus.
//
// A rank counts what it sends, by peer. What a rank receives is what the others have sent to it, so
// nothing is counted twice on the path of messages.
package live
