package fieldsupport

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// filled is a value of a type in which every list, map and pointer has something, so that a walk comes to every field.
func filled(t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Pointer:
		v.Set(filled(t.Elem()).Addr())
	case reflect.Slice:
		v.Set(reflect.Append(v, filled(t.Elem())))
	case reflect.Map:
		v.Set(reflect.MakeMap(t))
		v.SetMapIndex(reflect.New(t.Key()).Elem(), filled(t.Elem()))
	case reflect.Struct:
		if ours(t) {
			for i := range t.NumField() {
				v.Field(i).Set(filled(t.Field(i).Type))
			}
		}
	}
	return v
}

// specs are the types of the specs of all kinds that are registered.
func specs(t *testing.T) map[string]reflect.Type {
	scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, rkev1.AddToScheme, managementv3.AddToScheme, operationv1.AddToScheme)
	out := map[string]reflect.Type{}
	for kind, object := range scheme.AllKnownTypes() {
		if spec, ok := object.FieldByName("Spec"); ok && strings.HasPrefix(object.PkgPath(), strings.TrimSuffix(apiPackage, "/")) {
			out[kind.Kind+"."+kind.Group] = spec.Type
		}
	}
	if len(out) < 13 {
		t.Fatalf("only %d kinds have a spec: %v", len(out), out)
	}
	return out
}

// TestEveryField: each field of each kind has its line in the table, each line its field, and what is acted on is read by some code.
func TestEveryField(t *testing.T) {
	read := readFields(t)
	for kind, spec := range specs(t) {
		seen := map[string]bool{}
		walk(filled(spec), "", "", func(f field) bool {
			e, known := tables[spec][f.pattern]
			seen[f.pattern] = true
			structure := len(children(f)) > 0
			switch {
			case !known && structure:
				return true // its fields have lines of their own
			case !known:
				t.Errorf("%s: spec.%s has no line in the table: is it acted on, refused or warned of?", kind, f.pattern)
			case structure && e.support == actedOn:
				t.Errorf("%s: spec.%s has fields of its own: say of each whether it is acted on", kind, f.pattern)
			case e.support != actedOn && e.why == "":
				t.Errorf("%s: spec.%s: the line does not say why", kind, f.pattern)
			case e.support == actedOn && !read[f.owner.PkgPath()+"."+f.owner.Name()+"."+f.name]:
				t.Errorf("%s: spec.%s is said to be acted on, and no code reads %s.%s", kind, f.pattern, f.owner, f.name)
			case e.support == warned && !structure && read[f.owner.PkgPath()+"."+f.owner.Name()+"."+f.name]:
				t.Errorf("%s: spec.%s is said to have no effect, and code reads %s.%s", kind, f.pattern, f.owner, f.name)
			}
			return false
		})
		for pattern := range tables[spec] {
			if !seen[pattern] {
				t.Errorf("%s: there is no field spec.%s for its line in the table", kind, pattern)
			}
		}
	}
}

// children are the fields directly below a field.
func children(f field) (names []string) {
	below(f.value, "", "", func(f field) bool {
		names = append(names, f.name)
		return false
	})
	return names
}

// TestScanner: the check sees a field that is read, and one that is only copied.
func TestScanner(t *testing.T) {
	read := readFields(t)
	for field, want := range map[string]bool{
		"provisioning/v1.ClusterSpec.KubernetesVersion":   true,
		"rke/v1.ETCD.SnapshotScheduleCron":                true,
		"provisioning/v1.ClusterSpec.EnableNetworkPolicy": false, // copied into the management Cluster
	} {
		if read[apiPackage+field] != want {
			t.Errorf("%s is read: %t, want %t", field, !want, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	spec := &provisioningv1.ClusterSpec{
		KubernetesVersion: "v1.36.3+k3s1", EnableNetworkPolicy: ptr.To(false),
		RKEConfig: &provisioningv1.RKEConfig{ETCDSnapshotRestore: &rkev1.ETCDSnapshotRestore{}},
	}
	if got := Warnings(spec); len(got) > 0 {
		t.Errorf("warned of what asks for nothing: %q", got)
	}
	spec.EnableNetworkPolicy = ptr.To(true)
	spec.RKEConfig.RotateEncryptionKeys = &rkev1.RotateEncryptionKeys{Generation: 1}
	spec.FleetAgentDeploymentCustomization = &rkev1.AgentDeploymentCustomization{AppendTolerations: []corev1.Toleration{{Key: "a"}}}
	spec.RKEConfig.MachinePools = []provisioningv1.RKEMachinePool{{Name: "p", DynamicSchemaSpec: "b"}, {Name: "q", DisplayName: "c"}}
	var got []string
	for _, w := range Warnings(spec) {
		fields, _, _ := strings.Cut(w, " no effect: ")
		got = append(got, fields)
	}
	want := []string{
		"spec.rkeConfig.machinePools[p].dynamicSchemaSpec has",
		"spec.rkeConfig.machinePools[q].displayName has", "spec.fleetAgentDeploymentCustomization has", "spec.enableNetworkPolicy has",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	Clear(spec)
	if got := Warnings(spec); len(got) > 0 || spec.KubernetesVersion == "" || spec.RKEConfig.MachinePools[1].Name != "q" {
		t.Errorf("after Clear there are %q in %+v", got, spec)
	}
}
