package wireup

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
)

// SecretBytes is the length of a job's secret.
const SecretBytes = 32

// secretKey is where rank 0 publishes the secret if the launcher gave none.
const secretKey = "mpigo-secret"

// NewSecret makes a job secret, SecretBytes from crypto/rand. A launcher gives
// it to each process as MPIGO_SECRET, in hex.
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
		// The text itself stays out of the error, which may end in a log.
		return nil, fmt.Errorf("wireup: %s is not %d bytes in hex: %w", EnvSecret, SecretBytes, ErrSecret)
	}
	return secret, nil
}

// secretState is a Client's knowledge of the job's secret. Who holds mu may
// wait for the client's turn, never the other way round.
type secretState struct {
	mu      sync.Mutex
	value   []byte // nil: not known yet
	barrier bool   // a Barrier has completed
}

func (s *secretState) given(value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value = value
}

// publish lets rank 0 make the secret, and put it, ahead of the first Barrier.
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

func (s *secretState) passedBarrier() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.barrier = true
}

// Secret returns the job's secret, SecretBytes long: MPIGO_SECRET if the
// launcher set it, else one that rank 0 makes and its first Barrier publishes in
// the key-value space. So call it after the first Barrier; before that, and if
// the launcher gave a secret to some ranks only, the error Is ErrSecret.
//
// Under Hydra and Slurm the secret is as safe as their control connections: it
// keeps other users and strangers on the network from joining the job by
// guessing, not those who read the manager's traffic.
//
// The slice is the caller's.
func (c *Client) Secret() ([]byte, error) {
	s := &c.secret
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.value == nil {
		if !s.barrier {
			return nil, fmt.Errorf("wireup: secret is agreed by the first barrier: %w", ErrSecret)
		}
		value, err := c.Get(secretKey)
		if errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("wireup: rank 0 published no secret; does it have %s and this rank not?: %w", EnvSecret, ErrSecret)
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
