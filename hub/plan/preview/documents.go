package preview

import (
	"bytes"
	"strings"

	"sigs.k8s.io/yaml"
)

// documents writes documents of YAML or JSON, each of which is a map or a list, as YAML with their secrets hidden. It is false for all
// else.
func (m *Mask) documents(content []byte) (string, bool) {
	var out strings.Builder
	for i, part := range bytes.Split(append([]byte("\n"), content...), []byte("\n---")) {
		if len(bytes.TrimSpace(part)) == 0 {
			continue
		}
		var value any
		if err := yaml.Unmarshal(part, &value); err != nil {
			return "", false
		}
		switch value.(type) {
		case map[string]any, []any:
		case nil:
			continue
		default:
			return "", false
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.WriteString(m.value(value))
	}
	return out.String(), out.Len() > 0
}

// value writes a value as YAML with its secrets hidden.
func (m *Mask) value(v any) string {
	raw, err := yaml.Marshal(v)
	if err != nil {
		return "(cannot be shown)\n"
	}
	var plain any
	if err := yaml.Unmarshal(raw, &plain); err != nil {
		return "(cannot be shown)\n"
	}
	if raw, err = yaml.Marshal(m.hide("", plain)); err != nil {
		return "(cannot be shown)\n"
	}
	return string(raw)
}

// hide hides the secrets in a value that was found under a key.
func (m *Mask) hide(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		secret := v["kind"] == "Secret"
		out := make(map[string]any, len(v))
		for k, value := range v {
			if secret && (k == "data" || k == "stringData") {
				out[k] = m.all(value)
				continue
			}
			out[k] = m.hide(k, value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = m.hide(key, v[i])
		}
		return out
	case string:
		return m.string(key, v)
	}
	return v
}

// all hides every string.
func (m *Mask) all(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, value := range v {
			out[k] = m.all(value)
		}
		return out
	case nil:
		return nil
	}
	return m.mark([]byte(strings.TrimSpace(m.plain(v))))
}

func (m *Mask) plain(v any) string {
	raw, err := yaml.Marshal(v)
	if err != nil {
		return ""
	}
	return string(raw)
}

func (m *Mask) string(key, v string) any {
	switch {
	case v == "":
		return v
	case isSensitive(key):
		return m.mark([]byte(v))
	// Values of charts and configurations come as text within a document.
	case strings.Contains(v, "\n"):
		var inner any
		if err := yaml.Unmarshal([]byte(v), &inner); err != nil {
			return m.mark([]byte(v))
		}
		if _, text := inner.(string); text {
			return m.mark([]byte(v))
		}
		return m.hide(key, inner)
	}
	return m.argument(v)
}
