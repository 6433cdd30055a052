package pml

import "github.com/mpigo/mpigo/bml"

// Types of package bml that callers of this package use. Package comm does not import bml.
type (
	Route       = bml.Route
	RailEvent   = bml.RailEvent
	RailStatus  = bml.RailStatus
	ErrorCounts = bml.ErrorCounts
)

// MaxRoutes is the largest number of routes to a peer that Config.Resolve may return.
const MaxRoutes = bml.MaxRoutes
