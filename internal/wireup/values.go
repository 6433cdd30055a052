package wireup

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// A value of any bytes has to fit in a key-value space of short words. Its text is "LENGTH.TEXT",
// with TEXT in base64url. The text is cut into pieces, which stand under key, key/1, key/2 and so
// on. LENGTH is the number of bytes of the value. From it the reader computes the number of pieces,
// and detects a piece that was cut short.

// Bounds of Put.
const (
	MaxKeyBytes   = 48
	MaxValueBytes = 64 << 10
)

// minPieceBytes is the shortest limit on values that a manager may have: it bounds the number of
// pieces, and thereby the length of "/N".
const minPieceBytes = 64

var pieceEncoding = base64.RawURLEncoding.Strict()

// Put publishes value (any bytes, up to MaxValueBytes) under key (letters, digits, '-' and '_', up
// to MaxKeyBytes). Other ranks see it after the next Barrier. Put a key once in a job's life: the
// effect of a second Put differs from manager to manager. Put keeps no reference to value.
//
// Errors: ErrKey, ErrTooLarge, ErrRefused (by the manager), and those of every exchange:
// ErrTimeout, ErrProtocol, ErrLost, ErrClosed.
func (c *Client) Put(key string, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if len(value) > MaxValueBytes {
		return fmt.Errorf("wireup: put %s: %d bytes, at most %d: %w", key, len(value), MaxValueBytes, ErrTooLarge)
	}
	text := strconv.Itoa(len(value)) + "." + pieceEncoding.EncodeToString(value)
	for i := 0; text != ""; i++ {
		name := pieceKey(key, i)
		room, err := c.pieceBytes(name)
		if err != nil {
			return err
		}
		n := min(room, len(text))
		if err := c.putPiece(name, text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// Get returns the value that was Put under key before the last Barrier. If there is none, the error
// Is ErrNotFound. The caller owns the slice.
func (c *Client) Get(key string) ([]byte, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return assemble(key, c.getPiece)
}

// assemble joins the value of a key from its pieces, which the function piece gets by name.
func assemble(key string, piece func(name string) (string, error)) ([]byte, error) {
	first, err := piece(pieceKey(key, 0))
	if err != nil {
		return nil, err
	}
	length, text, ok := strings.Cut(first, ".")
	size, err := strconv.Atoi(length)
	if !ok || err != nil || size < 0 || size > MaxValueBytes {
		return nil, fmt.Errorf("wireup: get %s: %q is not a value that Put wrote: %w", key, clip(first), ErrProtocol)
	}
	want := pieceEncoding.EncodedLen(size)
	for i := 1; len(text) < want; i++ {
		next, err := piece(pieceKey(key, i))
		if err != nil {
			return nil, err
		}
		if next == "" {
			return nil, fmt.Errorf("wireup: get %s: empty piece: %w", key, ErrProtocol)
		}
		text += next
	}
	value, err := pieceEncoding.DecodeString(text)
	if err != nil || len(value) != size {
		return nil, fmt.Errorf("wireup: get %s: value is damaged: %w", key, ErrProtocol)
	}
	return value, nil
}

func checkKey(key string) error {
	if key == "" || len(key) > MaxKeyBytes || !isWord(key, "-_") {
		return fmt.Errorf("wireup: key %q: %w", clip(key), ErrKey)
	}
	return nil
}

// pieceKey separates by '/', which Put does not allow in a key.
func pieceKey(key string, i int) string {
	if i == 0 {
		return key
	}
	return key + "/" + strconv.Itoa(i)
}

// pieceBytes returns the largest size of a piece under name. The manager's limits bound it, and so
// does the line that carries it. It stays one byte below the limit, because Hydra cuts off the last
// byte of a value that is as long as its limit.
func (c *Client) pieceBytes(name string) (int, error) {
	if len(name) > c.limits.keyBytes-1 {
		return 0, fmt.Errorf("wireup: key %q: process manager takes at most %d bytes: %w", name, c.limits.keyBytes-1, ErrKey)
	}
	return min(c.limits.valueBytes-1, maxRequestBytes-len(c.putLine(name, ""))), nil
}

func (c *Client) putLine(name, piece string) string {
	return formatLine("put", "kvsname", c.kvsName, "key", name, "value", piece)
}

func (c *Client) putPiece(name, piece string) error {
	a, err := c.exchange("put", "put_result", "kvsname", c.kvsName, "key", name, "value", piece)
	if err != nil {
		return err
	}
	return a.refusal("put " + name)
}

func (c *Client) getPiece(name string) (string, error) {
	a, found, err := c.lookUp(name)
	if err != nil {
		return "", err
	}
	if !found {
		return "", notFound(name)
	}
	value, _ := a.get("value")
	return value, nil
}

func notFound(name string) error { return fmt.Errorf("wireup: get %s: %w", name, ErrNotFound) }

// getPieces asks for all visible pieces whose names begin with prefix. More than max of them are a
// protocol error.
func (c *Client) getPieces(prefix string, max int) (map[string]string, error) {
	c.exchanging.Lock()
	defer c.exchanging.Unlock()
	a, err := c.request(getAll, getAllResult, "kvsname", c.kvsName, "prefix", prefix)
	if err != nil {
		return nil, err
	}
	if err := a.refusal(getAll); err != nil {
		return nil, err
	}
	count, err := a.number("count", 0, max)
	pieces := make(map[string]string)
	for range count {
		if a, err = c.readAnswer(getAll, getAllWord); err != nil {
			return nil, err
		}
		key, _ := a.get("key")
		value, _ := a.get("value")
		if _, again := pieces[key]; again || !strings.HasPrefix(key, prefix) {
			err = fmt.Errorf("key %q", clip(key))
			break
		}
		pieces[key] = value
	}
	if err != nil {
		c.broken = a.protocolError(getAll, err)
		return nil, c.broken
	}
	return pieces, nil
}

// lookUp asks for one key. Managers answer a missing key in different ways: rc=-1, rc=1, with or
// without a value. There is no other reason for a refusal.
func (c *Client) lookUp(name string) (answer, bool, error) {
	a, err := c.exchange("get", "get_result", "kvsname", c.kvsName, "key", name)
	if err != nil {
		return answer{}, false, err
	}
	rc, err := a.number("rc", -1<<31, 1<<31-1)
	if err != nil {
		return answer{}, false, a.protocolError("get "+name, err)
	}
	return a, rc == 0, nil
}
