// Package simhca is InfiniBand hardware in this process: devices on a network, that fulfil [verbs.Device] with the semantics of
// the verbs and fail on request.
//
// A [Fabric] is a network, a [Node] a machine on it and the provider of its devices, an [HCA] the hardware of one, by which tests
// make it fail. A message is packets, with packet sequence numbers, answers, timers and retries; what a queue pair does
// follows the tables of package verbs.
//
// # Time
//
// In real time everything that is due is done inside the calls of whoever calls; a timer covers latency and retries when nobody does.
// A virtual fabric's time moves only by [Fabric.Advance], and the same seed and calls give the same trace.
//
// # Memory
//
// A message's packets are stored in order. What comes last in a packet, its last aligned 8 bytes, or the 4 behind them, is stored
// last and in one piece: a receiver that polls these with an atomic load, and finds them, finds the rest. Memory is reached only
// through the registration that its key names; a number in a work request is never turned into a pointer, but for the bytes of inline
// requests, which have no key.
//
// # What is not as with devices
//
// All queue pairs of a network share a lock, and no packet takes bandwidth. Path migration is only told of, multicast, memory windows
// and resizing are not there. A queue pair's number is given again at once, so that what belongs to its predecessor is met.
package simhca
