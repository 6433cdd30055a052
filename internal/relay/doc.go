// Package relay carries questions to the ranks of a job whose launcher is not mpirun-go, such as
// Hydra or Slurm. Rank 0 is the hub: it listens on the socket of the job (package jobsocket), and
// on a TCP port whose addresses it publishes through the process manager. Each other rank connects
// to it, and then answers questions over that connection as it does for mpirun-go.
//
// # Connecting
//
// Both ends prove that they know the job's secret before a byte of theirs is used. Each sends a
// fresh nonce, and each MAC, an HMAC-SHA256, covers the name of the role, the rank's nonce, the
// hub's nonce and the hello. So a recorded handshake cannot be replayed. Numbers are little-endian.
//
//	rank                                          hub
//	nonce (32 bytes) →
//	                                           ← nonce (32 bytes)
//	length (2), MAC (32), hello as JSON →
//	                                           ← MAC (32)
//	                                           (package introspect from here on)
//
// An unauthenticated connection is closed after two seconds, or when too many are open and it is
// the oldest one (package gate). A rank whose connection was closed in this way connects again.
// Like messages, the data are not encrypted.
//
// A rank that finalizes says goodbye. If its connection ends otherwise, the hub reports that the
// rank does not answer, and the rank connects again.
package relay
