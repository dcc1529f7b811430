package replicas

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// message is one line of a stream. A line without content is a heartbeat.
type message struct {
	// Replica is the ID of who speaks; in the first message only.
	Replica string `json:"replica,omitempty"`
	// Draining is set in every message of a replica that is about to stop.
	Draining bool `json:"draining,omitempty"`
	// Snapshot begins a new set of sessions: Have of this message and of all up to the one with Complete are all there are.
	Snapshot bool `json:"snapshot,omitempty"`
	Complete bool `json:"complete,omitempty"`
	// Have and Gone are keys of sessions.
	Have []string `json:"have,omitempty"`
	Gone []string `json:"gone,omitempty"`
}

const (
	// keysPerMessage keeps messages small however many sessions there are; maxMessage is what a reader takes.
	keysPerMessage = 1000
	maxMessage     = 1 << 20
)

// snapshot returns the messages that tell all keys.
func snapshot(keys []string) []message {
	messages := []message{}
	for chunk := range slices.Chunk(keys, keysPerMessage) {
		messages = append(messages, message{Have: chunk})
	}
	if len(messages) == 0 {
		messages = []message{{}}
	}
	messages[0].Snapshot, messages[len(messages)-1].Complete = true, true
	return messages
}

// read calls handle with every message until the stream ends, which is an error in any case.
func read(stream io.Reader, handle func(message) error) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(make([]byte, 4096), maxMessage)
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return fmt.Errorf("reading the sessions of a replica: %w", err)
		}
		if err := handle(m); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading the sessions of a replica: %w", err)
	}
	return io.ErrUnexpectedEOF
}
