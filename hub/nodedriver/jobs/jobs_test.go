package jobs

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/programs"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const planted = "planted-cloud-token"

func lab(t *testing.T) *nodedriver.Machine {
	t.Helper()
	return &nodedriver.Machine{
		ID: nodedriver.ID{Kind: runtimeschema.GroupVersionKind{Group: "rke-machine.cattle.io", Version: "v1", Kind: "LabMachine"},
			Namespace: "fleet-default", Name: "one-workers-abcde-fghij", Machine: "one-workers-abcde-fghij",
			UID: "0d3ff4c2-7f1e-4d4b-9f2f-6f0f7a3b1c11"},
		Driver: "lab", Name: "one-workers-abcde-fghij", Hostname: "one-workers-abcde-fghij",
		Source:     managementv3.NodeDriverSpec{Active: true, URL: "https://example.com/driver", Checksum: strings.Repeat("0", 64)},
		Spec:       map[string]any{"size": int64(12345678), "url": "http://192.0.2.1"},
		Credential: map[string]string{"token": planted}, Script: []byte("#!/bin/sh\n"),
		State: &nodedriver.State{Name: "one-workers-abcde-fghij", Files: map[string][]byte{"config.json": []byte(`{"Driver":{}}`)}},
	}
}

// The objects of each operation are compared field by field. The credential is in the Secret of the order and nowhere else.
func TestObjects(t *testing.T) {
	options := Options{Namespace: "cattle-system", Image: "docker.io/drover/hub:v1.2.3"}
	withAll := options
	withAll.PullSecrets, withAll.ProgramDir = []string{"registry"}, "/node-drivers"
	var err error
	withAll.Scheduling, err = ParseScheduling(`{"nodeSelector": {"pool": "infra"}, "tolerations": [{"key": "infra", "operator": "Exists"}],
		"priorityClassName": "high"}`)
	if err != nil {
		t.Fatal(err)
	}
	withAll.Proxy = map[string]string{"HTTPS_PROXY": "http://proxy.example.com:3128"}
	m := lab(t)
	for name, tt := range map[string]struct {
		job     func() (job, error)
		options Options
	}{
		"flags": {func() (job, error) {
			return flagsJob(&order{Operation: readFlags, Driver: "lab", Source: managementv3.NodeDriverSpec{Active: true, Builtin: true}})
		}, withAll},
		"create": {func() (job, error) { o, err := orderOf(create, m); return machineJob(m.ID, o), err }, options},
		"remove": {func() (job, error) { o, err := orderOf(remove, m); return machineJob(m.ID, o), err }, options},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := tt.job()
			if err != nil {
				t.Fatal(err)
			}
			objects, err := j.objects(tt.options)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			for _, object := range objects {
				out.WriteString("---\n" + print(t, object))
			}
			if strings.Contains(out.String(), planted) {
				t.Error("the credential is outside of the order")
			}
			file := "testdata/" + name + ".golden"
			if *update {
				if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// print is an object as YAML, with the order, which is a Secret's, as its fields without the values of the credential.
func print(t *testing.T, object client.Object) string {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		t.Fatal(err)
	}
	object = object.DeepCopyObject().(client.Object)
	text := ""
	if s, ok := object.(*corev1.Secret); ok && s.Data != nil {
		o, err := decodeOrder(s.Data[orderKey])
		if err != nil {
			t.Fatal(err)
		}
		for field := range o.Credential {
			o.Credential[field] = "..."
		}
		raw, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		s.Data, text = nil, "# "+orderKey+":\n# "+strings.ReplaceAll(strings.TrimSpace(string(raw)), "\n", "\n# ")+"\n"
	}
	raw, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return "# " + kinds[0].GroupVersion().String() + " " + kinds[0].Kind + "\n" + text + string(raw)
}

// What goes into the Secret of an order comes out of it, large numbers as they are written.
func TestOrder(t *testing.T) {
	m := lab(t)
	m.Files = schema.Files{"sshKeypath": "sshKeyContents"}
	o, err := orderOf(create, m)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if o, err = decodeOrder(raw); err != nil {
		t.Fatal(err)
	}
	got, err := o.machine()
	if err != nil {
		t.Fatal(err)
	}
	m.ID, m.Spec["size"] = nodedriver.ID{}, json.Number("12345678")
	if diff := cmp.Diff(m, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Errors keep the type that callers tell them apart by; flags keep the types of their defaults.
func TestResult(t *testing.T) {
	through := func(r *result) *result {
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		out := &result{}
		if err := json.Unmarshal(raw, out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, want := range []error{
		nil, errors.New("other"), &nodedriver.InvalidError{Message: "field"}, &programs.FaultError{Message: "checksum"},
		&plugin.Error{Method: "Create", Message: "quota"}, &nodedriver.ProgramError{Err: &programs.FaultError{Message: "checksum"}},
	} {
		r := &result{}
		r.setError(want)
		got := through(r).err()
		if want == nil && got != nil || want != nil && (got == nil || cmp.Diff(want.Error(), got.Error()) != "") {
			t.Errorf("got %v, want %v", got, want)
		}
		var invalid *nodedriver.InvalidError
		if errors.As(want, &invalid) != errors.As(got, &invalid) {
			t.Errorf("%T became %T", want, got)
		}
		var program *nodedriver.ProgramError
		if errors.As(want, &program) != errors.As(got, &program) {
			t.Errorf("%T became %T", want, got)
		}
	}
	flags := []plugin.Flag{
		{Name: "lab-a", Kind: plugin.String, Default: "x"}, {Name: "lab-b", Kind: plugin.StringSlice, Default: []string{"x"}},
		{Name: "lab-c", Kind: plugin.Int, Default: 3, Usage: "u"}, {Name: "lab-d", Kind: plugin.Bool, Default: false, EnvVar: "E"},
	}
	r := &result{}
	if err := r.setFlags(flags); err != nil {
		t.Fatal(err)
	}
	got, err := through(r).flags()
	if diff := cmp.Diff(flags, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, wrong := range []createFlag{{Kind: "float"}, {Kind: plugin.Int, Default: json.RawMessage(`"x"`)}} {
		if _, err := (&result{Flags: []createFlag{wrong}}).flags(); err == nil {
			t.Errorf("%+v was taken", wrong)
		}
	}
}
