// Package calls has the table of the library's calls, and counts and times those of a rank, for
// profiles and traces.
//
// # The table
//
// The table (table.go) says of each call how it is named, in Go, in MPI and in errors and reports,
// and what it is: whether it sends, whether it is a collective, and so on. All other code asks the
// table by the number of the call, an ID. Reports and files have the names, because other programs
// read them, perhaps of another version; their readers look the name up (Named).
//
// # The recorder
//
// A rank that is observed has a Recorder, which its engine carries. Other ranks have none, and
// their calls check one pointer. The engine's lock guards the recorder.
//
// # What is counted and what is timed
//
// Each call is counted, by its ID and by the length of its message. The clock costs as much as half
// of a short message, so only some calls are timed:
//
//   - Samples. The recorder chooses the calls so that each call and length has about one sample in
//     SampleNanos. A sample stands for all calls since the one before it. The distance of
//     samples is random, so that the pattern of a loop does not matter. If calls are rarer than
//     that, each is timed.
//   - Long waits. A call that has polled in vain for some microseconds reads the clock (Waits). If
//     its wait takes LongNanos or more, the call is recorded whether it is a sample or not, and
//     stands for itself alone.
//
// With All, as traces need it, each call is timed.
//
// # Waiting and moving
//
// While a call waits, bytes of long messages may move, or the partner is late. The layer below says
// when transfers begin and end (Transfer), so a wait is split into the time in which some transfer
// of the rank is under way, and the rest.
//
// # The current call
//
// Current is the call of the goroutine that holds the lock. So a goroutine that waits sets it again
// (Resume) each time that it has taken the lock back.
package calls
