package plans

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Decode reads a plan from the value of the key "plan". Unknown fields are ignored; what is empty or no JSON is an error. Whether the plan
// can be applied is Validate's to say.
func Decode(raw []byte) (Plan, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return Plan{}, errors.New("decoding plan: empty")
	}
	var plan Plan
	if err := json.Unmarshal(raw, &plan); err != nil {
		return Plan{}, fmt.Errorf("decoding plan: %w", err)
	}
	return plan, nil
}

// Encode writes a plan as the value of the key "plan". Equal plans have equal bytes, so their checksums are equal too.
func (p Plan) Encode() ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(p); err != nil {
		return nil, fmt.Errorf("encoding plan: %w", err)
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// Checksum is the lower-case hex SHA-256, of a plan that of its raw bytes, exactly as they are stored: white space counts.
func Checksum(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// ShortChecksum is the beginning of a checksum, for names and messages.
func ShortChecksum(checksum string) string {
	return checksum[:min(len(checksum), 12)]
}
