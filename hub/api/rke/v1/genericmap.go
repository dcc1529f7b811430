package v1

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
)

// GenericMap is a free-form JSON object, such as the arguments of a distribution, whose keys no schema can list.
//
// +kubebuilder:object:generate=false
// +kubebuilder:validation:Type=object
// +kubebuilder:validation:XPreserveUnknownFields
type GenericMap struct {
	// Data holds what JSON decoding makes: nil, bool, int64, float64, string, []any and map[string]any.
	Data map[string]any `json:"-"`
}

// MarshalJSON writes the map itself; a nil map is written as an empty object.
func (m GenericMap) MarshalJSON() ([]byte, error) {
	if m.Data == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(m.Data)
}

// UnmarshalJSON reads a JSON object; whole numbers become int64, others float64.
func (m *GenericMap) UnmarshalJSON(data []byte) error {
	m.Data = nil
	if string(data) == "null" {
		return nil
	}
	decoded := map[string]any{}
	if err := unmarshalNumbers(data, &decoded); err != nil {
		return err
	}
	m.Data = decoded
	return nil
}

// IsZero lets omitzero leave out an empty map.
func (m GenericMap) IsZero() bool { return len(m.Data) == 0 }

// DeepCopyInto copies the map and all that it holds.
func (m *GenericMap) DeepCopyInto(out *GenericMap) {
	out.Data = nil
	if m.Data != nil {
		out.Data = runtime.DeepCopyJSON(normalise(m.Data).(map[string]any))
	}
}

// DeepCopy returns a copy that shares nothing with m.
func (m *GenericMap) DeepCopy() *GenericMap {
	if m == nil {
		return nil
	}
	out := new(GenericMap)
	m.DeepCopyInto(out)
	return out
}

// normalise turns what Go code may put into a map (int, []string, ...) into what JSON decoding would make of it, so that a copy never
// panics.
func normalise(value any) any {
	switch v := value.(type) {
	case nil, bool, int64, float64, string, json.Number:
		return v
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			out[key] = normalise(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = normalise(item)
		}
		return out
	case int:
		return int64(v)
	case int32:
		return int64(v)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	var out any
	if err := unmarshalNumbers(raw, &out); err != nil {
		return nil
	}
	return out
}
