package pml

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"

	"github.com/mpigo/mpigo/request"
)

// Matching is by source and tag within a context, oldest first. Each pair of source and tag,
// wildcards included, has its own queue, so the cost does not depend on receives and messages under
// other keys. A posted receive is in one queue: an arriving message searches four queues, and takes
// the receive that was posted first. An unexpected message is in the four queues of the keys that
// it matches: a receive searches one. BenchmarkMatch measures the cost, which is the same with 10
// other receives and with 100,000 (docs/evidence/performance.md).

// matchKey is a source, which is a rank of the job, and a tag. Either may be a wildcard.
type matchKey uint64

func keyOf(source, tag int) matchKey {
	return matchKey(uint32(int32(source)))<<32 | matchKey(uint32(int32(tag)))
}

var anyKey = keyOf(request.AnySource, request.AnyTag)

// node is the place of an element in one queue.
type node[T any] struct {
	item       *T
	next, prev *node[T]
	in         *queue[T] // nil if the element is in no queue
}

// queue is first in, first out, but an element may also be removed from the middle. A queue is in
// its table while it has elements. The last queue that became empty stays until another queue
// becomes empty.
type queue[T any] struct {
	key        matchKey
	head, tail *node[T]
	chain      *queue[T] // the next queue in the bucket, or the next spare one
}

// queueTable has a queue for each key that has elements. It is a hash table with chains. Making and
// dropping a queue takes a few nanoseconds, so keys may change all the time, like the tags of
// collectives.
type queueTable[T any] struct {
	buckets []*queue[T] // the number of buckets is a power of two
	shift   uint8       // 64 minus its logarithm
	live    int         // queues that have elements
	last    *queue[T]   // the queue that was emptied last; it may have elements again
	spare   *queue[T]
	spares  int
}

const minBuckets = 16

func (t *queueTable[T]) init() { t.resize(minBuckets) }

// bucket returns the bucket of a key: the upper bits of its product with 2⁶⁴ divided by the golden
// ratio. The halves of the key are mixed first, so that the source does not merely shift the result
// for the tag.
func (t *queueTable[T]) bucket(key matchKey) **queue[T] {
	k := uint64(key)
	k = (k ^ k>>32) * 0x9e3779b97f4a7c15
	return &t.buckets[(k^k>>29)*0xbf58476d1ce4e5b9>>(t.shift&63)]
}

// find returns the queue of a key, which may be empty, or nil.
func (t *queueTable[T]) find(key matchKey) *queue[T] {
	if q := t.last; q != nil && q.key == key {
		return q
	}
	return t.search(key)
}

func (t *queueTable[T]) search(key matchKey) *queue[T] {
	q := *t.bucket(key)
	for q != nil && q.key != key {
		q = q.chain
	}
	return q
}

// first returns the oldest element under a key, or nil.
func (t *queueTable[T]) first(key matchKey) *T {
	if q := t.find(key); q != nil && q.head != nil {
		return q.head.item
	}
	return nil
}

// push appends item to the queue of a key. n becomes its node there.
func (t *queueTable[T]) push(key matchKey, n *node[T], item *T) {
	q := t.find(key)
	if q == nil {
		q = t.newQueue(key)
	}
	n.item, n.in, n.prev, n.next = item, q, q.tail, nil
	if q.tail == nil {
		q.head = n
		t.live++
	} else {
		q.tail.next = n
	}
	q.tail = n
}

func (t *queueTable[T]) newQueue(key matchKey) *queue[T] {
	if t.live >= len(t.buckets) {
		t.resize(2 * len(t.buckets))
	}
	q := t.spare
	if q != nil {
		t.spare = q.chain
		t.spares--
	} else {
		q = new(queue[T])
	}
	at := t.bucket(key)
	q.key, q.chain = key, *at
	*at = q
	return q
}

// emptied keeps a queue that has become empty, because the next element often has the same key. It
// drops the queue that was kept before.
func (t *queueTable[T]) emptied(q *queue[T]) {
	t.live--
	if last := t.last; last != q {
		t.last = q
		if last != nil && last.head == nil {
			t.drop(last)
		}
	}
}

// drop takes an empty queue out of the table.
func (t *queueTable[T]) drop(q *queue[T]) {
	at := t.bucket(q.key)
	for *at != q {
		at = &(*at).chain
	}
	*at = q.chain
	if t.spares < len(t.buckets) {
		q.chain = t.spare
		t.spare = q
		t.spares++
	}
	if t.live < len(t.buckets)/8 && len(t.buckets) > minBuckets {
		t.resize(len(t.buckets) / 2)
	}
}

// resize changes the number of buckets.
func (t *queueTable[T]) resize(buckets int) {
	old := t.buckets
	t.buckets, t.shift = make([]*queue[T], buckets), uint8(64-bits.TrailingZeros(uint(buckets)))
	for _, q := range old {
		for q != nil {
			next := q.chain
			at := t.bucket(q.key)
			q.chain = *at
			*at = q
			q = next
		}
	}
	for t.spares > buckets {
		t.spare = t.spare.chain
		t.spares--
	}
}

// remove takes an element out of the queue of n.
func (t *queueTable[T]) remove(n *node[T]) {
	q := n.in
	if n.prev == nil {
		q.head = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		q.tail = n.prev
	} else {
		n.next.prev = n.prev
	}
	if q.head == nil {
		t.emptied(q)
	}
	*n = node[T]{}
}

// posted has the receives of a context that have not matched yet.
type posted struct {
	table queueTable[RecvRequest]
	// The number of receives with each kind of wildcard: an arriving message searches only for
	// kinds that exist.
	anyTag, anySource, anyBoth int
	count                      int
	order                      uint64 // the order of the last posted receive
}

func (q *posted) init() { q.table.init() }

// kind returns the counter for the wildcards of r, nil if it has none.
func (q *posted) kind(r *RecvRequest) *int {
	switch {
	case r.world != request.AnySource && r.tag != request.AnyTag:
		return nil
	case r.world != request.AnySource:
		return &q.anyTag
	case r.tag != request.AnyTag:
		return &q.anySource
	}
	return &q.anyBoth
}

func (q *posted) add(r *RecvRequest) {
	q.order++
	r.order = q.order
	q.table.push(keyOf(r.world, r.tag), &r.node, r)
	q.count++
	if n := q.kind(r); n != nil {
		*n++
	}
}

func (q *posted) remove(r *RecvRequest) {
	q.table.remove(&r.node)
	q.count--
	if n := q.kind(r); n != nil {
		*n--
	}
}

// removeRun takes the first n receives, which have no wildcards, out of a queue. The caller has
// cleared their nodes. next is the receive after them, nil if there is none.
func (q *posted) removeRun(in *queue[RecvRequest], n int, next *node[RecvRequest]) {
	q.count -= n
	if next != nil {
		in.head, next.prev = next, nil
		return
	}
	in.head, in.tail = nil, nil
	q.table.emptied(in)
}

// first returns the oldest receive that matches a message with this source, a rank of the job, and
// tag; nil if there is none.
func (q *posted) first(source, tag int) *RecvRequest {
	r := q.table.first(keyOf(source, tag))
	if q.anyTag > 0 {
		r = older(r, q.table.first(keyOf(source, request.AnyTag)))
	}
	if q.anySource > 0 {
		r = older(r, q.table.first(keyOf(request.AnySource, tag)))
	}
	if q.anyBoth > 0 {
		r = older(r, q.table.first(anyKey))
	}
	return r
}

// isNext reports whether the next message with r's source and tag, which are not wildcards, would
// match r.
func (q *posted) isNext(r *RecvRequest) bool {
	return r.world >= 0 && r.node.prev == nil && q.anyTag+q.anySource+q.anyBoth == 0
}

func older(a, b *RecvRequest) *RecvRequest {
	if a == nil || b != nil && b.order < a.order {
		return b
	}
	return a
}

// awaits reports whether a receive could match a message of a source.
func (q *posted) awaits(source int) bool {
	for _, queue := range q.table.buckets {
		for ; queue != nil; queue = queue.chain {
			if queue.head == nil {
				continue
			}
			if world := queue.head.item.world; world == source || world == request.AnySource {
				return true
			}
		}
	}
	return false
}

// inOrder lists the receives in the order in which they were posted.
func (q *posted) inOrder() []*RecvRequest {
	all := make([]*RecvRequest, 0, q.count)
	for _, queue := range q.table.buckets {
		for ; queue != nil; queue = queue.chain {
			for n := queue.head; n != nil; n = n.next {
				all = append(all, n.item)
			}
		}
	}
	slices.SortFunc(all, func(a, b *RecvRequest) int { return cmp.Compare(a.order, b.order) })
	return all
}

// message is a message that has arrived and was not received.
type message struct {
	nodes  [4]node[message] // for the keys exact, any tag, any source, both any
	source int              // rank in the job
	incoming
	data []byte // a copy of the payload of the first fragment
}

// unexpected holds the messages that no receive has matched yet.
type unexpected struct {
	table queueTable[message]
	count int
}

func (q *unexpected) init() { q.table.init() }

func (q *unexpected) add(m *message) {
	tag := int(m.tag)
	q.table.push(keyOf(m.source, request.AnyTag), &m.nodes[1], m)
	q.table.push(keyOf(request.AnySource, tag), &m.nodes[2], m)
	q.table.push(anyKey, &m.nodes[3], m)
	q.table.push(keyOf(m.source, tag), &m.nodes[0], m)
	q.count++
}

func (q *unexpected) remove(m *message) {
	for i := range m.nodes {
		q.table.remove(&m.nodes[i])
	}
	q.count--
}

// oldest returns the oldest message that a receive of key matches, or nil.
func (q *unexpected) oldest(key matchKey) *message {
	if q.count == 0 {
		return nil
	}
	return q.table.first(key)
}

// all yields the messages, oldest first.
func (q *unexpected) all() iter.Seq[*message] {
	return func(yield func(*message) bool) {
		all := q.table.find(anyKey)
		if all == nil {
			return
		}
		for n := all.head; n != nil && yield(n.item); n = n.next {
		}
	}
}

// messagePool keeps free messages, and their buffers by size. It is bounded, so that the memory of
// a burst of unexpected messages is released.
type messagePool struct {
	messages []*message
	// buffers[i] has slices of capacity minBufferBytes << i.
	buffers [16][][]byte
	bytes   int // in buffers
}

const (
	minBufferBytes  = 64
	maxPoolBytes    = 4 << 20
	maxPoolMessages = 1 << 14
)

// get returns a message with n bytes of data.
func (pool *messagePool) get(n int) *message {
	var m *message
	if last := len(pool.messages) - 1; last >= 0 {
		m = pool.messages[last]
		pool.messages = pool.messages[:last]
	} else {
		m = new(message)
	}
	m.data = pool.buffer(n)
	return m
}

func (pool *messagePool) buffer(n int) []byte {
	if n == 0 {
		return nil
	}
	size := minBufferBytes
	for i := range pool.buffers {
		if n <= size {
			if last := len(pool.buffers[i]) - 1; last >= 0 {
				b := pool.buffers[i][last]
				pool.buffers[i][last] = nil
				pool.buffers[i] = pool.buffers[i][:last]
				pool.bytes -= size
				return b[:n]
			}
			return make([]byte, n, size)
		}
		size *= 2
	}
	return make([]byte, n)
}

// put gives back a message that is in no queue.
func (pool *messagePool) put(m *message) {
	size := minBufferBytes
	for i := range pool.buffers {
		if cap(m.data) == size && pool.bytes+size <= maxPoolBytes {
			pool.buffers[i] = append(pool.buffers[i], m.data)
			pool.bytes += size
			break
		}
		size *= 2
	}
	*m = message{}
	if len(pool.messages) < maxPoolMessages {
		pool.messages = append(pool.messages, m)
	}
}
