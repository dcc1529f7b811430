package patch

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// changes is a merge patch in parts: the writable metadata, the status without its conditions, and the rest.
type changes struct {
	metadata, status, rest map[string]any
}

// writable are the fields of metadata that controllers change.
var writable = []string{"labels", "annotations", "finalizers", "ownerReferences"}

// diff returns the changes from before to after.
func diff(before, after Object) (changes, error) {
	c := changes{metadata: map[string]any{}, status: map[string]any{}, rest: map[string]any{}}
	raw, err := client.MergeFrom(before).Data(after)
	if err != nil {
		return c, fmt.Errorf("comparing %s with its previous state: %w", name(after), err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return c, fmt.Errorf("reading a patch: %w", err)
	}
	for field, value := range all {
		switch field {
		case "metadata":
			err = fields(value, func(name string, value json.RawMessage) {
				for _, known := range writable {
					if name == known {
						c.metadata[name] = value
					}
				}
			})
		case "status":
			err = fields(value, func(name string, value json.RawMessage) {
				if name != "conditions" {
					c.status[name] = value
				}
			})
		default:
			c.rest[field] = value
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// fields calls each for every field of a JSON object.
func fields(raw json.RawMessage, each func(string, json.RawMessage)) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("reading a patch: %w", err)
	}
	for name, value := range all {
		each(name, value)
	}
	return nil
}
