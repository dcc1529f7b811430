package schema

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/hub/nodedriver/plugin"
)

var update = flag.Bool("update", false, "write the golden files")

func flags() []plugin.Flag {
	return []plugin.Flag{
		{Name: "lab-access-token", Usage: "Token\n of  the API", EnvVar: "LAB_TOKEN", Kind: plugin.String, Default: ""},
		{Name: "lab-image", Usage: "Image", Kind: plugin.String, Default: "debian"},
		{Name: "lab-size", Usage: strings.Repeat("é", 300), Kind: plugin.Int, Default: 2},
		{Name: "lab-tags", Kind: plugin.StringSlice, Default: []string{"a"}},
		{Name: "lab-private-networking", Usage: "\xff private", Kind: plugin.Bool, Default: false},
	}
}

func TestDefinitions(t *testing.T) {
	fields, err := Fields("lab", flags(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, crd := range Definitions("nd-1", "lab", fields) {
		if want := contract.CalculateCRDName(crd.Spec.Group, crd.Spec.Names.Kind); crd.Name != want {
			t.Errorf("the definition is %s; Cluster API looks for %s", crd.Name, want)
		}
		raw, err := yaml.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString("---\n" + string(raw))
	}
	const golden = "testdata/lab.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOfRancher: a definition that Rancher has made can be taken over, once, and no other.
func TestOfRancher(t *testing.T) {
	for what, tt := range map[string]struct {
		group, owner, driver string
		want                 bool
	}{
		"Rancher's":                      {group: MachineGroup, owner: rancherSchema, want: true},
		"of machine configurations":      {group: ConfigGroup, owner: rancherSchema, want: true},
		"taken over":                     {group: MachineGroup, owner: rancherSchema, driver: "nd-1"},
		"of Rancher, for something else": {group: MachineGroup, owner: "apps/v1, Kind=Deployment"},
		"of another group":               {group: "example.com", owner: rancherSchema},
		"a user's":                       {group: MachineGroup},
	} {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		crd.Annotations, crd.Labels = map[string]string{RancherOwnerKindAnnotation: tt.owner}, map[string]string{DriverLabel: tt.driver}
		crd.Spec.Group = tt.group
		if got := OfRancher(crd); got != tt.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// A driver that lies about its flags is refused.
func TestRefusedFlags(t *testing.T) {
	for name, tt := range map[string]struct {
		flags []plugin.Flag
		want  string
	}{
		"of another driver": {[]plugin.Flag{{Name: "other-size", Default: ""}}, "is spec.displayName the name"},
		"no words":          {[]plugin.Flag{{Name: "lab-", Default: ""}}, "not of the form"},
		"shell":             {[]plugin.Flag{{Name: "lab-a;rm -rf", Default: ""}}, "not of the form"},
		"reserved":          {[]plugin.Flag{{Name: "lab-metadata", Default: ""}}, "another meaning"},
		"the same field":    {[]plugin.Flag{{Name: "lab-a-b", Default: ""}, {Name: "lab-aB", Default: ""}}, "flags lab-a-b and lab-aB"},
		"a long default":    {[]plugin.Flag{{Name: "lab-a", Default: strings.Repeat("x", 1<<20)}}, "longer than"},
		"a binary default":  {[]plugin.Flag{{Name: "lab-a", Default: []string{"\xff"}}}, "no text"},
		"a long name":       {[]plugin.Flag{{Name: "lab-" + strings.Repeat("x", 200), Default: ""}}, "not of the form"},
	} {
		if _, err := Fields("lab", tt.flags, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

// TestFileFields: a field takes the content of the file whose path the flag takes, under the name that a NodeDriver says.
func TestFileFields(t *testing.T) {
	flags := []plugin.Flag{
		{Name: "lab-size", Kind: plugin.Int, Default: 2},
		{Name: "lab-ssh-keypath", Usage: "Key", Kind: plugin.String, Default: ""},
	}
	for annotation, want := range map[string]string{
		"":                              "size sshKeypath",
		"sshKeyContents:sshKeypath , ,": "size sshKeyContents*",
		"key:ssh-keypath":               "size key*",
		"sshKeypath:sshKeypath":         "size sshKeypath*",
		"sshKeyContents":                `"sshKeyContents" is not of the form`,
		"a:sshKeypath,b:sshKeypath":     `"b:sshKeypath" is not of the form`,
		"key:ssh--keypath":              "is not of the form",
		"key:":                          "is not of the form",
		"../x:sshKeypath":               "is not of the form",
		"metadata:sshKeypath":           "is not of the form",
		"cacert:cacert":                 "the driver has no field cacert; remove cacert:cacert",
		"contents:size":                 "size is not the path of a file, but int",
		"size:sshKeypath":               "flags lab-size and lab-ssh-keypath would both be the field size",
	} {
		files, err := ParseFiles(annotation)
		var fields []Field
		if err == nil {
			fields, err = Fields("lab", flags, files)
		}
		if err == nil {
			err = files.Check(fields)
		}
		var got []string
		for _, field := range fields {
			if field.File {
				field.Name += "*"
			}
			got = append(got, field.Name)
		}
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && strings.Join(got, " ") != want {
			t.Errorf("%q: got %v, %v, want %s", annotation, got, err, want)
		}
	}
	// Rancher's annotation of google.
	files, err := ParseFiles("authEncodedJson:authEncodedJson,userdata:userdata")
	if diff := cmp.Diff(Files{"userdata": "userdata"}, files); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	flags[1].Default = "/a/path"
	if key := flagProps([]Field{{Name: "key", Flag: flags[1], File: true}}, true, "")["key"]; key.Description !=
		"Key (the content of the file)" || key.Default != nil {
		t.Errorf("got %+v", key)
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"", "Lab", "1lab", "lab-one", strings.Repeat("x", 32)} {
		if ValidateName(name) == "" {
			t.Errorf("%q is taken for a name", name)
		}
	}
	for flag, want := range map[string]string{
		"size": "size", "private-networking": "privateNetworking", "ssh-key-fingerprint": "sshKeyFingerprint",
		"iam-instance-profile": "iamInstanceProfile",
	} {
		if got := camelCase(flag); got != want {
			t.Errorf("%s became %s, want %s", flag, got, want)
		}
	}
	if got := DriverOf(ConfigKind("amazonec2").GroupKind()); got != "amazonec2" {
		t.Errorf("got %q", got)
	}
	if got := DriverOf(MachineKind("amazonec2").GroupKind()); got != "" {
		t.Errorf("got %q", got)
	}
}
