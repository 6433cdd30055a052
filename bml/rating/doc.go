// Package rating judges the rails to one peer by what they deliver. It says how many bytes a rail
// may have under way, which rail takes the next piece of a long message and how long that piece is,
// which rail is best for a short message, and which piece is worth sending twice.
//
// Rails pull: a rail takes the next piece when it has room. Its room is what it delivers in a short
// time, by its measured rate. So a rail that slows down takes less, a faster one takes more, and
// what a dead rail had under way is bounded. The package never fails a rail: errors and silence do
// that, not rates.
//
// The package is pure: it has no clock, and knows rails only by number. Samples go in
// ([Judge.Posted], [Judge.Delivered]), and answers come out. The same samples give the same
// answers. A Judge has no lock; its caller serializes the calls.
//
// Times are in nanoseconds, by a monotonic clock. Rates are in bytes a nanosecond.
//
// # Measuring
//
// A rail's rate is the mean of what it delivered while something was under way, with a memory of
// memoryNanos. Time without a delivery counts at once, so the rate of a silent rail falls. The base
// round trip comes from pieces that were posted on an almost empty rail: a round trip under load
// grows with the room, and the room would grow without end. The room starts at leastRoom and grows
// by the delivered bytes, which doubles it each round trip: a token bucket passes the first bytes
// at line rate, so the first sample may be far too high.
//
// # Choosing
//
// Of the rails with room, a piece goes by the one that should deliver it first. If a rail without
// room would deliver the rest of the message even sooner, the piece waits. At the end of a message,
// a piece that a slow rail would deliver late may go by another rail too ([Judge.Again]), within a
// budget of bytes.
package rating
