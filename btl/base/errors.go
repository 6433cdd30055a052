package base

import "errors"

// Errors that several transports report.
var (
	ErrPeerClosed = errors.New("the peer has closed its end")
	ErrPeerFailed = errors.New("the peer's end failed")
	ErrEpochs     = errors.New("no epoch is left")
	ErrModules    = errors.New("the peer has too many modules")
	ErrNoSecret   = errors.New("the job's secret is not known yet")

	// These say what is wrong with a Put or Get.
	ErrKey      = errors.New("bad or stale key")
	ErrAccess   = errors.New("region does not permit it")
	ErrBounds   = errors.New("out of the region's bounds")
	ErrLocal    = errors.New("local memory is not registered")
	ErrReleased = errors.New("region was released")
)
