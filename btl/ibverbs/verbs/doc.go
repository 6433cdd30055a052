// Package verbs is the vocabulary of InfiniBand verbs: what a work completion, an
// asynchronous event, a queue pair and its states are, with the rules that hold between
// them as tables, and the [Device] that a program works with.
//
// Two packages provide devices: libibverbs, the real one, and simhca, a simulated one in
// this process. Both check every change of a queue pair's state by [CheckModify], and the
// suite in verbstest holds both to the tables, a case for each row.
//
// Numbers are those of the verbs interface (rdma-core's infiniband/verbs.h), so that they
// cross to the real library unchanged; but Services are sets of bits, and no ibv_qp_type. The types that cross in numbers, [SendWR], [RecvWR],
// [SGE] and [WC], have no Go pointers in them and a layout that C shares.
//
// # Threads
//
// One goroutine at a time calls the methods of a device and of what was made from it, but for
// the functions given to Notify, which are called from anywhere.
//
// # Memory
//
// Memory that a work request names belongs to the device from the post to the completion, and
// to an unsignaled one until a later one of its queue completes; but of an inline request the
// buffer is the caller's again when the post returns. The memory must be registered ([PD].RegMR)
// for as long, again but for inline ones. Addresses in work requests are numbers: nothing but
// the registration keeps their memory alive, and memory of an inline request must not be on a
// goroutine's stack.
package verbs
