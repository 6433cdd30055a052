package wireup

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
)

// SecretBytes is the length of a job's secret.
const SecretBytes = 32

// secretKey is the key under which rank 0 publishes the secret if the launcher set none.
const secretKey = "mpigo-secret"

// NewSecret makes a job secret: SecretBytes from crypto/rand. A launcher passes it to each process
// as MPIGO_SECRET, in hex.
func NewSecret() ([]byte, error) {
	secret := make([]byte, SecretBytes)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("wireup: %w", err)
	}
	return secret, nil
}

// parseSecret returns nil for "".
func parseSecret(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	secret, err := hex.DecodeString(text)
	if err != nil || len(secret) != SecretBytes {
		// The error does not contain the text, because it may be logged.
		return nil, fmt.Errorf("wireup: %s is not %d bytes in hex: %w", EnvSecret, SecretBytes, ErrSecret)
	}
	return secret, nil
}

// secretState is a Client's copy of the job's secret. A goroutine that holds mu may wait for
// Client.exchanging, never the other way round.
type secretState struct {
	mu      sync.Mutex
	value   []byte // nil if not known yet
	barrier bool   // a Barrier has completed
}

func (s *secretState) set(value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value = value
}

// publish makes and puts the secret, at rank 0 and before the first Barrier, unless the launcher
// set one.
func (s *secretState) publish(c *Client) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.value != nil || s.barrier || c.rank != 0 {
		return nil
	}
	secret, err := NewSecret()
	if err != nil {
		return err
	}
	if err := c.Put(secretKey, secret); err != nil {
		return err
	}
	s.value = secret
	return nil
}

// tag returns a text that depends on the secret and does not reveal it, or "" if the secret is not
// known yet.
func (s *secretState) tag() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.value == nil {
		return ""
	}
	sum := sha256.Sum256(append([]byte("mpigo job identity "), s.value...))
	return hex.EncodeToString(sum[:4])
}

func (s *secretState) barrierDone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.barrier = true
}

// Secret returns the job's secret of SecretBytes: MPIGO_SECRET if the launcher set it, else a
// secret that rank 0 makes and its first Barrier publishes in the key-value space. Call it after
// the first Barrier. Before that, and if the launcher set the secret for some ranks only, the error
// Is ErrSecret.
//
// Under Hydra and Slurm the secret is as safe as their control connections. It keeps other users
// and hosts on the network from guessing their way into the job. It does not protect against an
// attacker that reads the manager's traffic.
//
// The caller owns the slice.
func (c *Client) Secret() ([]byte, error) {
	s := &c.secret
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.value == nil {
		if !s.barrier {
			return nil, fmt.Errorf("wireup: no secret before the first barrier: %w", ErrSecret)
		}
		value, err := c.Get(secretKey)
		if errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("wireup: rank 0 published no secret: is %s set there and not at this rank?: %w", EnvSecret, ErrSecret)
		}
		if err != nil {
			return nil, err
		}
		if len(value) != SecretBytes {
			return nil, fmt.Errorf("wireup: published secret has %d bytes: %w", len(value), ErrSecret)
		}
		s.value = value
	}
	return append([]byte(nil), s.value...), nil
}
