package wireup

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The value of PMI_process_mapping is "(vector,(START,NODES,RANKS),…)". Each block puts RANKS
// consecutive ranks on each of NODES consecutive nodes, the first of which is START. If ranks are
// left after the last block, the vector repeats from the first block with START 0, or from the
// first block if there is none. MPICH reads it in the same way: blocks before START 0 belong to the
// launch that spawned this one.

// nodesState is the manager's answer about nodes. A goroutine that holds mu may wait for
// Client.exchanging, never the other way round.
type nodesState struct {
	mu    sync.Mutex
	known bool
	of    []int
}

// NodeOf returns the node of each rank as an index, or nil if the manager does not provide it. The
// manager chooses the indices; equal indices mean the same node. The manager is asked once. The
// caller owns the slice.
func (c *Client) NodeOf() ([]int, error) {
	c.nodes.mu.Lock()
	defer c.nodes.mu.Unlock()
	if !c.nodes.known {
		nodeOf, err := c.askNodes()
		if err != nil {
			return nil, err
		}
		c.nodes.of, c.nodes.known = nodeOf, true
	}
	return slices.Clone(c.nodes.of), nil
}

func (c *Client) askNodes() ([]int, error) {
	a, found, err := c.lookUp(mappingKey)
	if err != nil || !found {
		return nil, err
	}
	value, _ := a.get("value")
	nodeOf, err := parseMapping(value, c.size)
	if err != nil {
		return nil, a.protocolError("get "+mappingKey, err)
	}
	return nodeOf, nil
}

type mapBlock struct{ start, nodes, ranks int }

// maxMappingBytes keeps the value, with a closing NUL, within our limit for values.
const maxMappingBytes = valLenMax - 1

// parseMapping returns the node of each of size ranks.
func parseMapping(text string, size int) ([]int, error) {
	body, ok := strings.CutPrefix(text, "(vector,")
	if ok {
		body, ok = strings.CutSuffix(body, ")")
	}
	if !ok || body == "" {
		return nil, errors.New("not of the form (vector,…)")
	}
	var blocks []mapBlock
	for {
		block, rest, err := parseBlock(body)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, block)
		if rest == "" {
			break
		}
		if body, ok = strings.CutPrefix(rest, ","); !ok {
			return nil, errors.New("no comma between blocks")
		}
	}
	return expandBlocks(blocks, size), nil
}

// parseBlock reads "(a,b,c)" at the front of s.
func parseBlock(s string) (block mapBlock, rest string, err error) {
	inner, ok := strings.CutPrefix(s, "(")
	if ok {
		inner, rest, ok = strings.Cut(inner, ")")
	}
	if !ok {
		return mapBlock{}, "", errors.New("block without parentheses")
	}
	words := strings.SplitN(inner, ",", 4)
	if len(words) != 3 {
		return mapBlock{}, "", errors.New("block does not have three numbers")
	}
	// Each block must place at least one rank: expandBlocks would not end otherwise.
	for i, field := range []struct {
		to  *int
		low int
	}{{&block.start, 0}, {&block.nodes, 1}, {&block.ranks, 1}} {
		n, err := strconv.Atoi(words[i])
		if err != nil || n < field.low || n > maxRanks {
			return mapBlock{}, "", fmt.Errorf("bad number %q in block", clip(words[i]))
		}
		*field.to = n
	}
	return block, rest, nil
}

// expandBlocks returns the node of each of size ranks. It needs at least one block, and at least
// one rank in each.
func expandBlocks(blocks []mapBlock, size int) []int {
	again := max(0, slices.IndexFunc(blocks, func(b mapBlock) bool { return b.start == 0 }))
	nodeOf := make([]int, 0, size)
	for from := 0; ; from = again {
		for _, b := range blocks[from:] {
			for node := b.start; node < b.start+b.nodes; node++ {
				for range b.ranks {
					if len(nodeOf) == size {
						return nodeOf
					}
					nodeOf = append(nodeOf, node)
				}
			}
		}
	}
}

// formatMapping is the inverse of parseMapping, except that it renumbers the nodes in order of
// appearance. If the text is longer than maxMappingBytes it returns "": clients then find out by
// themselves which ranks share a node.
func formatMapping(nodeOf []int) string {
	nodeOf = renumber(nodeOf)
	var blocks []mapBlock
	for i := 0; i < len(nodeOf); {
		j := i
		for j < len(nodeOf) && nodeOf[j] == nodeOf[i] {
			j++
		}
		node, ranks := nodeOf[i], j-i
		if n := len(blocks); n > 0 && blocks[n-1].ranks == ranks && blocks[n-1].start+blocks[n-1].nodes == node {
			blocks[n-1].nodes++
		} else {
			blocks = append(blocks, mapBlock{node, 1, ranks})
		}
		i = j
	}
	// A round-robin placement repeats its first block.
	if len(blocks) > 1 && slices.Equal(expandBlocks(blocks[:1], len(nodeOf)), nodeOf) {
		blocks = blocks[:1]
	}
	var b strings.Builder
	b.WriteString("(vector")
	for _, block := range blocks {
		fmt.Fprintf(&b, ",(%d,%d,%d)", block.start, block.nodes, block.ranks)
		if b.Len() >= maxMappingBytes {
			return ""
		}
	}
	b.WriteByte(')')
	return b.String()
}

// renumber replaces the nodes by indices in order of appearance.
func renumber(nodeOf []int) []int {
	index := make(map[int]int)
	out := make([]int, len(nodeOf))
	for rank, node := range nodeOf {
		n, ok := index[node]
		if !ok {
			n = len(index)
			index[node] = n
		}
		out[rank] = n
	}
	return out
}
