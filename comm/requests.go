package comm

import (
	"context"
	"iter"

	"github.com/mpigo/mpigo/request"
)

// Request is a handle of an operation under way (MPI 4.1, section 3.7). Isend, Irecv, Ibcast and
// similar calls return it. A program waits for it, or tests it until it is complete:
//
//   - Wait waits until the operation is complete, and returns its status and its error. WaitContext
//     also returns when a context ends; the operation then continues.
//   - Test makes progress and says whether the operation is complete. If it is, Test does the same
//     as Wait. GetStatus leaves the request as it is: the program must still wait for it, or free
//     it.
//   - Done is a channel for select that is closed when the operation has ended. Wait then returns
//     the result at once. The library makes progress meanwhile, without a call.
//   - Cancel asks the operation to end without effect. Wait must still be called. Its status says
//     whether the operation was cancelled.
//   - Free releases the handle. An operation under way continues, and the program cannot learn of
//     its end.
//   - Start starts a persistent request, such as one of [SendInit] or [AllreduceInit].
//   - IsNull, IsActive and IsPersistent report its state.
//
// [WaitAll], [WaitAny], [WaitSome], [Completed], [TestAll], [TestAny], [TestSome] and [StartAll] do
// this for several requests of one rank.
//
// A Request is a small value, and all copies of it are equal. Goroutines may share it. The zero
// Request is the null handle. Once a call of the Wait or Test families has returned the result of a
// request, and once the request is freed, every copy is null too. A persistent request becomes
// inactive instead of null, and can be started again until it is freed.
//
// No call waits for a null or inactive request: the single calls return the empty status, and
// report that the operation is complete.
//
// The buffers of a request belong to the library until a call has returned its result. The buffers
// of a persistent request belong to the library while the request is active; the library keeps them
// alive until Free.
type Request = request.Request

// Status is the result of a completed receive or probe. Other operations give the empty status.
//
//   - Source and Tag are the source and tag of the message. In the empty status they are AnySource
//     and AnyTag.
//   - Count is the number of whole elements of the receive's type; −1 after a probe, which knows
//     no type: see [Count]. Bytes is the length in bytes.
//   - Cancelled is true if Cancel has ended the operation.
//   - Err is the error of the request, in the statuses that calls over several requests set. Other
//     calls leave it nil and return the error.
type Status = request.Status

// WaitAll waits until all requests are complete. Null and inactive requests count as complete. If
// some requests fail, the error Is [ErrInStatus] and Is the error of each request that has failed.
// WaitAll then returns without waiting for the others: requests that are not complete stay active,
// and the program must wait for them again.
func WaitAll(reqs ...Request) error { return request.WaitAll(reqs...) }

// WaitAllStatus is [WaitAll] that also sets the status of each request. sts must be as long as
// reqs, or nil. Null and inactive requests get the empty status. If the error Is [ErrInStatus], Err
// of each status is nil, the error of its request, or [ErrPending] if the request is still active.
func WaitAllStatus(reqs []Request, sts []Status) error { return request.WaitAllStatus(reqs, sts) }

// WaitAny waits until one of the requests is complete, and returns its index, status and error. If
// several are complete, it returns the one that completed first. If no request is active, the index
// is [Undefined]. So a loop can pass the same list until it has got all requests. [Completed] is
// such a loop.
func WaitAny(reqs ...Request) (index int, st Status, err error) { return request.WaitAny(reqs...) }

// WaitSome waits until at least one of the requests is complete. It returns the number of complete
// requests, and puts their indices and statuses at the beginning of indices and, unless it is nil,
// of sts, in the order of the list. Both must be at least as long as reqs. If no request is active,
// it returns [Undefined]. If some of the complete requests have failed, the error Is [ErrInStatus],
// and Err of each status has the error of its request.
func WaitSome(reqs []Request, indices []int, sts []Status) (outcount int, err error) {
	return request.WaitSome(reqs, indices, sts)
}

// TestAll makes progress and reports whether all requests are complete. If they are, it does the
// same as [WaitAllStatus]. If not, it changes nothing. sts must be as long as reqs, or nil.
func TestAll(reqs []Request, sts []Status) (flag bool, err error) { return request.TestAll(reqs, sts) }

// TestAny makes progress and reports whether one of the requests is complete. If one is, it does
// the same as [WaitAny]. If no request is active, flag is true and the index is [Undefined].
func TestAny(reqs ...Request) (index int, st Status, flag bool, err error) {
	return request.TestAny(reqs...)
}

// TestSome makes progress and does the same as [WaitSome] for the requests that are complete then.
// If none is, outcount is 0.
func TestSome(reqs []Request, indices []int, sts []Status) (outcount int, err error) {
	return request.TestSome(reqs, indices, sts)
}

// StartAll starts inactive persistent requests, in the order of the list. If one of them cannot be
// started, or is in the list twice, it returns an error that Is [ErrRequest] and starts none.
func StartAll(reqs ...Request) error { return request.StartAll(reqs...) }

// Completed yields the requests as they complete, each with its index and its status. Err of the
// status is the error of the request. Requests that are complete at the call come first, in the
// order of the list. The iteration ends when no request is active any more, when ctx ends, or when
// the loop is left early. Requests that were not yielded then keep their state.
//
// If the rank leaves the job meanwhile, Completed yields the requests that are still active with
// the reason in Err. All requests must belong to one rank. Otherwise Completed yields a single
// status, whose Err Is [ErrRequest].
func Completed(ctx context.Context, reqs ...Request) iter.Seq2[int, Status] {
	return request.Completed(ctx, reqs...)
}

// Count returns the number of elements of type T in the bytes of a status. ok is false if the bytes
// are not a whole number of elements. After a probe, it gives the length of the buffer for the
// receive. For a T of size zero, n is 0, and ok is true if there are no bytes.
func Count[T any](st Status) (n int, ok bool) { return request.Count[T](st) }
