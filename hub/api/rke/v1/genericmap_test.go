package v1

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGenericMap(t *testing.T) {
	type holder struct {
		Config GenericMap `json:"config,omitempty,omitzero"`
	}
	for _, tt := range []struct {
		name, in, out string
		want          map[string]any
	}{
		{name: "absent", in: `{}`, out: `{}`},
		{name: "null", in: `{"config":null}`, out: `{}`},
		{name: "empty", in: `{"config":{}}`, out: `{}`, want: map[string]any{}},
		{name: "values", in: `{"config":{"a":1,"b":1.5,"c":["x"],"d":{"e":true},"f":null}}`,
			out:  `{"config":{"a":1,"b":1.5,"c":["x"],"d":{"e":true},"f":null}}`,
			want: map[string]any{"a": int64(1), "b": 1.5, "c": []any{"x"}, "d": map[string]any{"e": true}, "f": nil}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h holder
			if err := json.Unmarshal([]byte(tt.in), &h); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, h.Config.Data); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
			out, err := json.Marshal(h)
			if err != nil {
				t.Fatal(err)
			}
			if string(out) != tt.out {
				t.Errorf("encoded %s, want %s", out, tt.out)
			}
		})
	}
	if err := json.Unmarshal([]byte(`{"config":[1]}`), &holder{}); err == nil {
		t.Error("a list was taken for a map")
	}
}

func TestGenericMapDeepCopy(t *testing.T) {
	in := GenericMap{Data: map[string]any{"n": 3, "list": []string{"a"}, "nested": map[string]any{"k": []any{int64(1)}}}}
	out := in.DeepCopy()
	want := map[string]any{"n": int64(3), "list": []any{"a"}, "nested": map[string]any{"k": []any{int64(1)}}}
	if diff := cmp.Diff(want, out.Data); diff != "" {
		t.Errorf("copy (-want +got):\n%s", diff)
	}
	out.Data["nested"].(map[string]any)["k"] = nil
	if in.Data["nested"].(map[string]any)["k"] == nil {
		t.Error("the copy shares a map with the original")
	}
}
