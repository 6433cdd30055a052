// Package remote starts ranks on other hosts. On each host, a daemon does the launcher's work: it
// starts ranks through package procs, with a watchdog of its own, and forwards their streams.
//
// # Connecting to a host
//
// An agent (ssh, srun) runs a sh script on the host. The agent's standard input and output are the
// channel between launcher and daemon:
//
//	launcher                              host
//	starts the agent →
//	                                    ← "mpigo-agent want HASH", unless the cache has mpirun-go
//	mpirun-go's file →                  (it puts itself into the cache)
//	                                    ← "mpigo-daemon VERSION"; frames follow
//	hello: the job's secret, a nonce →
//	                                    ← welcome: HMAC of the nonce; the host's processors
//	offer: a program's path and hash →
//	                                    ← answer: its path there, or a request for the file
//	the file →
//	                                    ← answer: its path on the host
//	start: a rank →
//	                                    ← started: its process ID
//	        streams in both directions, signals →, ← exits of ranks
//	fetch: a profile or trace of a rank →
//	                                    ← fetched: its size; the file
//	bye →
//
// The launcher ignores other output before the first of these lines, since login shells may print
// messages. No command line and no environment contains the secret, except the ranks' environment.
//
// # Records
//
// Ranks write profiles and traces on their hosts (package records). Before they start, the launcher
// asks each host which of these directories are local to the host. A directory is shared if it
// contains the marker that the launcher has created there. Later the launcher fetches the files
// from the local directories (record.go, localrecord.go). It asks for the file of a kind and a
// rank. A host sends no file name, so no host decides where the launcher writes.
//
// # Frames
//
// A frame (frame.go) has a kind, a host, a rank, a stream of the rank, and a payload of bounded
// size. The functions in message.go decode payloads. They trust nothing: an error ends the channel.
// If there are more than fanOut hosts, some hosts are reached through others. Their daemons forward
// the frames unchanged (branch.go).
//
// Each stream has a window (flow.go), which bounds the data that are sent but not read. The
// goroutine that handles the frames of a channel never waits for a stream or for another channel
// (link.go), so a slow reader delays only its own stream. Frames other than input and output
// overtake waiting input and output.
//
// # The end
//
// When its channel ends, a daemon kills the job's processes on its host and closes the channels to
// its children. When a daemon dies, its watchdog does the same. If a channel ends before kindBye,
// the launcher considers the host lost, and all hosts that are reached through it. It does so also
// after a long silence, or after a short one once the job's end has begun. The exit of an agent
// ends its channel, even if a child of the agent holds the pipes open.
package remote
