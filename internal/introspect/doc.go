// Package introspect lets a launcher ask the ranks of a running job what they do. It has the
// questions and answers, their form on the wire, and both ends of a connection.
//
// # Connections
//
// mpirun-go gives each rank a connected socket, beside the PMI socket. FDVariable names its
// descriptor. A rank on another host reaches the launcher through the daemon of its host. The rank
// serves the socket from Init to Finalize, on a goroutine of its own (Serve), so it answers also
// while the program computes. It does not answer if its process is stopped. The launcher waits only
// for a bounded time (Conn.Ask), and reports this.
//
// # The wire
//
// Both directions carry JSON values, one a line. The rank begins with an Answer of ID 0, by which
// the launcher learns that the program uses the library. Then the launcher sends a Question, and
// the rank answers with one Answer of the same ID, in the order of the questions, but for traces,
// which take longer. A rank whose connection may stay open after its end says goodbye before it
// finalizes (SayGoodbye). Fields that a version does not know are ignored. Version changes when the
// meaning of a field or question does.
//
//	launcher                                     rank
//	                                          ← {"v":2,"id":0,"progress":0}, from Init
//	{"v":2,"id":7,"want":"report"} →
//	                      ← {"v":2,"id":7,"report":{"rank":3,"pid":4711, …}}
//
// # Cost
//
// A rank without questions has one idle goroutine, and no cost on the path of messages. A report
// takes the rank's lock once, and then stops the process for the time of writing the stacks. A rank
// that leaves a few questions unanswered gets no more until it goes on.
package introspect
