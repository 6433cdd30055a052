// Package simhca simulates InfiniBand hardware in this process: devices on a network that implement
// [verbs.Device] and fail on request.
//
// A [Fabric] is a network. A [Node] is a machine on it and the provider of the machine's devices.
// An [HCA] is the hardware of a device; tests inject faults through it.
//
// # What the devices do
//
//   - RC, UC and UD queue pairs; send, write, read and atomics; shared receive queues; completion
//     channels; asynchronous events.
//   - Messages travel as packets with packet sequence numbers, acknowledgments, timers and retries.
//   - Queue pairs follow the tables of package verbs.
//   - A port is an Ethernet (RoCE) or an InfiniBand port. RoCE packets go to the port with their
//     GID.
//   - An InfiniBand port is in a subnet. The simulated subnet manager gives it LIDs, its GID prefix
//     and partition keys, and may change LIDs and keys, which raises events. Packets go to the port
//     that has their LID, or through a router to the subnet of their GID.
//   - A queue pair drops packets of another partition, and of a limited member if it is one itself.
//   - Failed completions contain random values in every member that the specification leaves
//     undefined.
//
// # What the devices do not do
//
//   - Packets take no bandwidth; they only have a latency.
//   - All queue pairs of a fabric share one lock.
//   - Path migration is an event without an effect.
//   - Service levels and traffic classes are checked, but all packets have the same service.
//   - There are no management datagrams, so no path queries.
//   - Multicast, memory windows and resizing of queues are not implemented.
//   - A queue pair number is reused at once. Real devices reuse it later, so tests meet packets of
//     the number's previous owner more often here.
//
// # Time
//
// In real time, each call executes the events that are due; a timer executes them when no caller
// does. The time of a virtual fabric moves only with [Fabric.Advance] and [Fabric.AdvanceTo], and
// the same seed and calls give the same trace.
//
// # Memory
//
// The packets of a message are stored in order. The last aligned 8 bytes of a packet, or the 4
// bytes after them, are stored last and atomically. A receiver that polls them with an atomic load
// therefore finds the rest of the packet, too.
//
// Every access to memory goes through the registration that the key names. The exception are inline
// requests, which have no key: only their addresses are turned into pointers.
package simhca
