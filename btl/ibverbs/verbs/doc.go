// Package verbs defines the vocabulary of InfiniBand verbs: work completions, asynchronous events,
// queue pairs and their states, the rules between them as tables, and the [Device] interface.
//
// Two packages provide devices: libibverbs, the real ones, and simhca, simulated ones in this
// process. Both check every state change of a queue pair with [CheckModify]. The conformance suite
// in package verbstest tests a provider against the tables, one case per row.
//
// The constants have the values of rdma-core's infiniband/verbs.h, so they are passed to the real
// library unchanged. The exception is [Services], a set of bits instead of an ibv_qp_type. The
// types that cross to C in numbers, [SendWR], [RecvWR], [SGE] and [WC], contain no Go pointers and
// have a layout that C shares.
//
// # Queue pair states
//
// [QP].Modify makes these state changes. [FindTransition] has the attributes that each change
// requires and allows; every other change is refused.
//
//	RESET → INIT → RTR → RTS
//	INIT → INIT, RTS → RTS, SQD → SQD   change attributes only
//	RTS → SQD → RTS                     drain the send queue and resume
//	SQE → RTS                           UC and UD only: resume after a failed send
//	any state → ERR, any state → RESET
//
// The device itself moves a queue pair to ERR or SQE after a failed work request ([After]).
//
// The state decides what happens to work requests and to incoming packets:
//
//	state  PostSend  PostRecv  incoming packets
//	RESET  refused   refused   dropped
//	INIT   refused   accepted  dropped
//	RTR    refused   accepted  accepted
//	RTS    accepted  accepted  accepted
//	SQD    pending   accepted  accepted
//	SQE    flushed   accepted  accepted
//	ERR    flushed   flushed   dropped
//
// # Sources
//
// The comments cite these documents by the names in quotes:
//
//   - "InfiniBand error model": the Japanese article "InfiniBand のエラーハンドリングのモデル".
//   - "Queue pair states": the Japanese article "InfiniBand の QP ステートの遷移を理解する".
//   - "InfiniBand specification": InfiniBand Architecture Specification, volume 1.
//
// # Threads
//
// One goroutine at a time calls the methods of a device and of the objects made from it. The
// functions passed to Notify are called from any goroutine.
//
// # Memory
//
// The device owns the memory that a work request names from the post until the completion. For an
// unsignaled request, it owns the memory until a later request of the same queue completes. For an
// inline request, the caller owns the buffer again when the post returns.
//
// The memory must be registered with [PD].RegMR for the same time; inline requests need no
// registration. Addresses in work requests are numbers, so only the registration keeps the memory
// alive. The memory of an inline request must not be on a goroutine's stack.
package verbs
