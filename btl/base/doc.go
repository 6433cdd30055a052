// Package base is the common part of all transports, like src/uct/base in UCX.
//
// A transport embeds [Module] in its module and [Endpoint] in its endpoint, both by value, so that
// a post or a progress call reaches their fields without a further pointer or interface call.
// Module and Endpoint keep the life cycle that package btl prescribes (C4):
//
//	Up ──Module.FailEndpoint, Module.FailModule──▶ Failed ──Module.Drained──▶ Drained
//
// An error that is found where Events.Failed must not be called, such as inside Send, is deferred:
// [Module.DeferFailure] blocks further posts, and the next progress call fails the endpoint.
//
// The rest are helpers for several transports: tables of legal transitions, checks of
// configurations, checksums of addresses, and common errors.
//
// All of it is used under the lock of the rank's progress engine.
package base
