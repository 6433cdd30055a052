package pml

import "github.com/mpigo/mpigo/bml"

// The types of the layer below that callers of this one need.
type (
	Route      = bml.Route
	RailEvent  = bml.RailEvent
	RailStatus = bml.RailStatus
)
