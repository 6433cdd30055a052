//go:build !race

package pml

const raced = false
