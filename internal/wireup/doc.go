// Package wireup brings the processes of one job together. A process manager
// starts them and holds a small key-value space and a barrier; each process
// publishes there how it can be reached, and looks up the others. Both sides are
// here: the Client that a process has, and the Server that mpirun-go runs. They
// speak PMI-1, so that our programs also start under Hydra (mpiexec.hydra) and
// Slurm (srun --mpi=pmi2), and MPICH's programs under mpirun-go.
//
// # The life of a process
//
//	client, err := wireup.FromEnv(nil) // ErrNoLauncher: a world of one
//	…                                  // make the transports, which need client.Rank, Size
//	client.PutCard(card)               // 1. say how to reach this rank
//	client.Barrier()                   // 2. from here on every card can be read
//	secret, err := client.Secret()     // 3. the first Barrier has agreed on it
//	…
//	client.GetCards()                  // or GetCard(peer), whenever a peer is first talked to
//	…
//	client.Barrier()                   // nobody needs anybody any more
//	client.Finalize()                  // leave in order
//
// The order of 1, 2 and 3 matters: what is put becomes visible at a barrier and
// not before, with every process manager. All ranks call Barrier equally often.
// A rank that ends without Finalize has died, in the eyes of its manager. In
// trouble, Abort ends the whole job.
//
// # The same on the wire
//
//	process                                      manager
//	                                             starts it with PMI_FD=6 PMI_RANK=1 PMI_SIZE=2
//	cmd=init pmi_version=1 pmi_subversion=1 →
//	                                           ← cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
//	cmd=get_maxes →
//	                                           ← cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=800
//	cmd=get_my_kvsname →
//	                                           ← cmd=my_kvsname kvsname=job
//	cmd=put kvsname=job key=mpigo-card-1 value=36.AYg… →
//	                                           ← cmd=put_result rc=0 msg=success
//	cmd=barrier_in →
//	                                             waits for all ranks
//	                                           ← cmd=barrier_out
//	cmd=get kvsname=job key=mpigo-card-0 →
//	                                           ← cmd=get_result rc=0 msg=success value=36.AYg…
//	cmd=finalize →
//	                                           ← cmd=finalize_ack
//
// With PMI_PORT and PMI_ID in place of PMI_FD, PMI_RANK and PMI_SIZE the process
// connects by itself and says cmd=initack pmiid=1 before anything else; the
// manager answers cmd=initack, cmd=set size=2, cmd=set rank=1, cmd=set debug=0.
//
// Our own manager also knows a request of ours, for what would otherwise be a get for each rank by each rank. It says so, for our own
// client, in a word of its answer to get_maxes, and no other manager is ever asked:
//
//	cmd=get_maxes →
//	                                           ← cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=800 mpigo_get_all=1
//	cmd=mpigo_get_all kvsname=job prefix=mpigo-card- →
//	                                           ← cmd=mpigo_get_all_result rc=0 count=2
//	                                           ← cmd=mpigo_word key=mpigo-card-0 value=36.AYg…
//	                                           ← cmd=mpigo_word key=mpigo-card-1 value=36.AYg…
//
// # The life of a job at its launcher
//
// NewServer, then for each rank a connected pair of sockets: one end goes to the
// process as PMI_FD, the launcher closes its copy of that end after the start
// and calls Serve(rank, other end) on a goroutine of its own. Serve returns when
// the process has finalized (nil), never spoke PMI (nil), died, aborted, or
// breached the protocol. When a rank has left, no barrier can complete any more:
// who waits in one, or enters one later, is told (cmd=barrier_failed rank=N state=N) and
// has its connection closed, instead of hanging. Fail ends all that is left.
//
// # Trust
//
// Nothing that the other side says is believed: lines, keys, values, numbers and
// the total of what a job may store are bounded, and nonsense ends the connection
// with an error that Is ErrProtocol. Who can reach the socket can take part in the
// job, though; an inherited socket pair is reachable by the process alone.
package wireup
