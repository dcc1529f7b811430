package render

import (
	"encoding/base64"
	"strings"
	"testing"
)

// TestParamFiles: what RKE2 takes as the path of a file may be its content, as YAML or as a text. A path stays one.
func TestParamFiles(t *testing.T) {
	const policy, admission = "audit-policy-file", "pod-security-admission-config-file"
	for name, tc := range map[string]struct{ arg, value, content string }{
		"audit policy":              {policy, `{"kind": "Policy"}`, "kind: Policy\n"},
		"admission of Pods":         {admission, `{"kind": "AdmissionConfiguration"}`, "kind: AdmissionConfiguration\n"},
		"admission of Pods as text": {admission, `"kind: AdmissionConfiguration\n"`, "kind: AdmissionConfiguration\n"},
		"path":                      {admission, `"/etc/rancher/rke2/own.yaml"`, ""},
	} {
		in := machineOf(t, rke2, "a", "ec")
		in.Cluster.Spec.MachineGlobalConfig = config(t, `{"`+tc.arg+`": `+tc.value+`}`)
		plan, problems := Plan(in)
		if len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
		path, files := "/var/lib/rancher/rke2/etc/config-files/"+tc.arg, map[string]string{}
		for _, f := range plan.Files {
			content, err := base64.StdEncoding.DecodeString(f.Content)
			if err != nil {
				t.Fatal(err)
			}
			files[f.Path] = string(content)
		}
		if files[path] != tc.content {
			t.Errorf("%s: the file is %q", name, files[path])
		}
		want := path
		if tc.content == "" {
			want = "/etc/rancher/rke2/own.yaml"
		}
		if args := files[configPath(in.Cluster)]; !strings.Contains(args, `"`+tc.arg+`": "`+want+`"`) {
			t.Errorf("%s: the configuration is %s", name, args)
		}
	}
}
