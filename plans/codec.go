package plans

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// UnknownField returns the name of a field in a plan that Decode ignores, since it is mistyped or of a later version: the first one; empty
// if there is none.
func UnknownField(raw []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&Plan{})
	if err == nil {
		return ""
	}
	// The package has no type for this error.
	quoted, found := strings.CutPrefix(err.Error(), "json: unknown field ")
	if !found {
		return ""
	}
	name, err := strconv.Unquote(quoted)
	if err != nil {
		return ""
	}
	return name
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
