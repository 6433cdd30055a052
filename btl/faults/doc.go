// Package faults decorates a module so that its operations fail on request (btl.Injector, C9). The
// transport below does not know about faults, and keeps no state for them.
//
// The decorator stands between the layer above and the transport, in both directions: it takes
// posts and passes them on, and it is the btl.Events that the transport reports to. A fault either
// keeps an operation from the transport (FaultRefuse, FaultWrong, FaultErrorLost, FaultSilence) or
// withholds its completion (FaultErrorDelivered, FaultLate). FaultStale needs the transport's help:
// its endpoint is a btl.StaleSender.
//
// The contract of package btl holds for the decorated module and its endpoints: an operation that
// the decorator keeps is called back between Failed and Drained of its endpoint.
//
// All of it is used under the lock of the rank's progress engine.
package faults
