//go:build !race

package comm

const raced = false
