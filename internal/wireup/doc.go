// Package wireup brings the processes of one job together. A process manager starts them and holds
// a small key-value space and a barrier. Each process publishes there how it can be reached, and
// looks up the others. The package has both sides: the Client of a process, and the Server of
// mpirun-go. They speak PMI-1, so our programs also start under Hydra (mpiexec.hydra) and Slurm
// (srun --mpi=pmi2), and MPICH's programs under mpirun-go.
//
// # The life of a process
//
//	client, err := wireup.FromEnv(nil) // ErrNoLauncher: a world of one rank
//	…                                  // make the transports, which need client.Rank, Size
//	client.PutCard(card)               // 1. publish how to reach this rank
//	client.Barrier()                   // 2. from here on all cards are visible
//	secret, err := client.Secret()     // 3. the first Barrier has agreed on it
//	client.GetCards()
//	…
//	client.Barrier()                   // no rank needs another any more
//	client.Finalize()                  // leave in order
//
// The order of 1, 2 and 3 matters: a value that is put becomes visible at a barrier and not before,
// with every process manager. All ranks call Barrier equally often. Cards are exchanged only at
// start-up; see PublishModule for later changes. To its manager, a rank that ends without Finalize
// has died. Abort ends the whole job.
//
// # The same on the wire
//
//	process                                      manager
//	                                             starts it with PMI_FD=6 PMI_RANK=1 PMI_SIZE=2
//	cmd=init pmi_version=1 pmi_subversion=1 →
//	                                 ← cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
//	cmd=get_maxes →
//	                                 ← cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=800
//	cmd=get_my_kvsname →
//	                                 ← cmd=my_kvsname kvsname=job
//	cmd=put kvsname=job key=mpigo-card-1 value=36.AYg… →
//	                                 ← cmd=put_result rc=0 msg=success
//	cmd=barrier_in →
//	                                             waits for all ranks
//	                                 ← cmd=barrier_out
//	cmd=get kvsname=job key=mpigo-card-0 →
//	                                 ← cmd=get_result rc=0 msg=success value=36.AYg…
//	cmd=finalize →
//	                                 ← cmd=finalize_ack
//
// With PMI_PORT and PMI_ID in place of PMI_FD, PMI_RANK and PMI_SIZE, the process connects to the
// manager and first sends cmd=initack pmiid=1. The manager answers cmd=initack, cmd=set size=2,
// cmd=set rank=1, cmd=set debug=0.
//
// PMI-1 needs a get by each rank for each other rank. Our own manager has a request that returns
// all cards at once: the number of its answers grows with the number of ranks, and only their bytes
// grow with the square. It offers the request in its answer to get_maxes. Our client uses it only
// if it is offered.
//
//	cmd=get_maxes →
//	                       ← cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=800 mpigo_get_all=1
//	cmd=mpigo_get_all kvsname=job prefix=mpigo-card- →
//	                                 ← cmd=mpigo_get_all_result rc=0 count=2
//	                                 ← cmd=mpigo_word key=mpigo-card-0 value=36.AYg…
//	                                 ← cmd=mpigo_word key=mpigo-card-1 value=36.AYg…
//
// A module may get its address, or a new one, after the start. PMI-1 does not support that, because
// values become visible only at a barrier. Our own manager accepts such addresses at any time, and
// returns to a rank the latest address of each module that the rank has not seen yet:
//
//	cmd=get_maxes →
//	                              ← cmd=maxes … mpigo_get_all=1 mpigo_publish=1
//	cmd=mpigo_publish kvsname=job key=mpigo-module-1-2 value=AYg… →
//	                              ← cmd=mpigo_publish_result rc=0 msg=success
//	cmd=mpigo_published kvsname=job since=0 →
//	                              ← cmd=mpigo_published_result rc=0 count=1
//	                              ← cmd=mpigo_word key=mpigo-module-1-2 value=AYg…
//
// # The life of a job at its launcher
//
// The launcher calls NewServer, and makes a connected pair of sockets for each rank. One end goes
// to the process as PMI_FD; the launcher closes its copy of that end after the start. For the other
// end it calls Serve(rank, end) on a goroutine of its own. Serve returns when the process has
// finalized (nil), never spoke PMI (nil), died, aborted, or violated the protocol.
//
// When a rank has left, no barrier can complete any more. A rank that waits in a barrier, or enters
// one later, gets an error (cmd=barrier_failed rank=N state=N) instead of hanging, and its
// connection is closed. Fail ends all connections that are left.
//
// # Trust
//
// Neither side trusts the other. Lines, keys, values, numbers and the total that a job may store
// are bounded. A line that breaks the protocol ends the connection with an error that Is
// ErrProtocol. A process that can reach the socket can take part in the job; only the process
// itself can reach an inherited socket pair.
package wireup
