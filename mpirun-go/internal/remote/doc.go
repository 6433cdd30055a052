// Package remote starts ranks on other hosts. There, a daemon does what the launcher does here: it
// starts them through package procs, with a guard of its own, and carries what they say.
//
// # The way there
//
// An agent (ssh, srun) runs a line of sh on the host, with its standard input and output as the
// channel:
//
//	launcher                                     host
//	starts the agent →
//	                                           ← "mpigo-agent want HASH", if mpirun-go is not in the user's cache
//	mpirun-go's file →                         (into a file without a name; executed, it puts itself into the cache)
//	                                           ← "mpigo-daemon VERSION", and from here on frames
//	hello: the job's secret, a nonce →
//	                                           ← welcome: an HMAC of the nonce with the secret; the host's processors
//	offer: a program's path and hash →
//	                                           ← answer: where it is there, or that it is wanted
//	its bytes →
//	                                           ← answer: where it is now
//	start: a rank →
//	                                           ← started: its process
//	        streams both ways, signals →, ← how ranks ended
//	bye →
//
// What is said before the first of these lines is ignored: shells greet. The secret is on no
// command line and in no environment but the ranks'.
//
// # Frames
//
// A frame (frame.go) is of a kind, about a host and a rank or a stream of it, with a payload whose
// size its kind bounds. Payloads are read by message.go, and nothing in them is trusted: an error
// ends the channel. With more than fanOut hosts, some are reached through others; a daemon passes
// on frames for hosts behind it, and from there, as they are (branch.go).
//
// Each stream has a window (flow.go): so much may be under way that nobody has read. Who takes
// frames from a channel never waits, for a stream or for the other channel (link.go), so a slow
// reader holds up its own stream alone. Frames that are no output or input let those that are wait.
//
// # The end
//
// When the channel ends, the daemon ends all that the job has on its host, and its own children see
// the end of theirs. When a daemon dies, its guard does the same. To the launcher the end of a
// channel before its goodbye is the loss of the host, and of those behind it. So is a host that is
// silent for long, or for a moment once the job is being ended. The end of an agent is that of its
// channel, even if something that it has started holds the pipes open.
package remote
