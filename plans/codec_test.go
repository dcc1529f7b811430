package plans

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecode(t *testing.T) {
	tests := map[string]struct {
		raw  string
		want Plan
		err  string
	}{
		"minimum": {
			raw: `{"instructions":[{"name":"install-k3s","image":"docker.io/rancher/system-agent-installer-k3s:v1.21.0-k3s1"}]}`,
			want: Plan{Instructions: []Instruction{{CommonInstruction: CommonInstruction{
				Name: "install-k3s", Image: "docker.io/rancher/system-agent-installer-k3s:v1.21.0-k3s1"}}}},
		},
		"all parts": {
			raw: `{"files":[{"path":"/a","content":"YQ==","permissions":"0644","uid":-1,"dynamic":true,"minor":true}],
				"periodicInstructions":[{"name":"p","command":"true","periodSeconds":5,"saveStderrOutput":true}],
				"probes":{"etcd":{"httpGet":{"url":"http://127.0.0.1:2381/health","insecure":true}}},"unknown":[1]}`,
			want: Plan{
				Files: []File{{Path: "/a", Content: "YQ==", Permissions: "0644", UID: -1, Dynamic: true, Minor: true}},
				PeriodicInstructions: []PeriodicInstruction{{CommonInstruction: CommonInstruction{Name: "p", Command: "true"},
					PeriodSeconds: 5, SaveStderrOutput: true}},
				Probes: map[string]Probe{"etcd": {HTTPGet: HTTPGetAction{URL: "http://127.0.0.1:2381/health", Insecure: true}}},
			},
		},
		"keys in any case": {raw: `{"Files":[{"PATH":"/a"}]}`, want: Plan{Files: []File{{Path: "/a"}}}},
		"empty":            {raw: " \n", err: "decoding plan: empty"},
		"not JSON":         {raw: "files: []", err: "decoding plan: invalid character"},
		"trailing":         {raw: "{} {}", err: "decoding plan: invalid character"},
		"wrong type":       {raw: `{"files":{}}`, err: "decoding plan: json: cannot unmarshal object"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Decode([]byte(test.raw))
			checkError(t, err, test.err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUnknownField: who writes a plan by hand can learn of a mistyped field, which agents ignore.
func TestUnknownField(t *testing.T) {
	for raw, want := range map[string]string{
		`{"instructions":[{"name":"a","script":"true","saveOutput":true}],"probes":{"p":{"httpGet":{"url":"http://a"}}}}`: "",
		`{"Files":[{"PATH":"/a"}]}`:                             "",
		`{"instruction":[{"name":"a"}]}`:                        "instruction",
		`{"instructions":[{"name":"a","skript":"true"}]}`:       "skript",
		`{"probes":{"p":{"httpGet":{"url":"http://a"},"x":1}}}`: "x",
		`{`: "",
	} {
		if got := UnknownField([]byte(raw)); got != want {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	}
}

func TestEncodeIsDeterministicAndReadable(t *testing.T) {
	plan := Plan{
		Instructions: []Instruction{{CommonInstruction: CommonInstruction{Name: "a", Command: "sh", Args: []string{"-c", "a && b > c"}}}},
		Probes:       map[string]Probe{"b": {}, "a": {}},
	}
	first, err := plan.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"instructions":[{"name":"a","args":["-c","a && b > c"],"command":"sh"}],"probes":{"a":{"httpGet":{}},"b":{"httpGet":{}}}}`
	if diff := cmp.Diff(want, string(first)); diff != "" {
		t.Error(diff)
	}
	again, err := plan.Encode()
	if err != nil || string(again) != string(first) {
		t.Errorf("second encoding differs: %s, %v", again, err)
	}
}

func TestChecksumCountsWhiteSpace(t *testing.T) {
	if got, want := Checksum([]byte("{}")), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if Checksum([]byte("{}")) == Checksum([]byte("{} ")) {
		t.Error("white space is ignored")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"files":[{"path":"/a","content":"YQ=="}],"instructions":[{"name":"a","env":["A=b"]}],` +
		`"probes":{"x":{"httpGet":{"url":"http://a"}}}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		plan, err := Decode(raw)
		if err != nil {
			return
		}
		_ = plan.Validate()
		encoded, err := plan.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if changes := Diff(plan, again); !changes.Empty() {
			t.Fatalf("plan changes on its way: %s", changes)
		}
	})
}

// checkError fails unless err holds want; an empty want asks for no error.
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Fatalf("unexpected error: %v", err)
	case want != "" && err == nil:
		t.Fatalf("no error, want %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Fatalf("error %q does not hold %q", err, want)
	}
}
