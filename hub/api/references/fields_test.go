package references

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// suspect matches names of fields that may refer to an object.
var suspect = regexp.MustCompile(`(?i)(secret|configmap|credential|token|cert|bundle)|(name|ref|CA|CAs)$`)

// fields returns the paths of all fields below a type, its status aside, that may refer to an object: those whose name tells,
// and those that may hold anything.
func fields(t reflect.Type, path string, above []reflect.Type) []string {
	switch {
	case t.Kind() == reflect.Pointer:
		return fields(t.Elem(), path, above)
	case t == reflect.TypeFor[rkev1.GenericMap]() || t.Kind() == reflect.Interface || t == reflect.TypeFor[runtime.RawExtension]():
		return []string{path}
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return fields(t.Elem(), path+"[]", above)
	case t.Kind() == reflect.Map:
		return fields(t.Elem(), path+"{}", above)
	case t.Kind() == reflect.Struct && !strings.HasPrefix(t.PkgPath(), "k8s.io/apimachinery/") && !slices.Contains(above, t):
		var out []string
		for field := range t.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			at := path + "." + name
			if name == "" && (field.Anonymous || strings.Contains(options, "inline")) {
				at = path
			}
			if field.Type != reflect.TypeFor[metav1.TypeMeta]() && at != ".status" {
				out = append(out, fields(field.Type, at, append(above, t))...)
			}
		}
		return out
	}
	last := strings.TrimRight(path[strings.LastIndex(path, ".")+1:], "[]{}")
	if text := t.Kind() == reflect.String || t.Kind() == reflect.Slice; text && suspect.MatchString(last) {
		return []string{path}
	}
	return nil
}

// kinds are all kinds of the hub by their names.
func kinds(t *testing.T) map[string]reflect.Type {
	t.Helper()
	scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, rkev1.AddToScheme, managementv3.AddToScheme, operationv1.AddToScheme)
	out := map[string]reflect.Type{}
	for gvk, kind := range scheme.AllKnownTypes() {
		if strings.HasPrefix(kind.PkgPath(), "github.com/drover-dev/") && !strings.HasSuffix(gvk.Kind, "List") {
			out[gvk.GroupVersion().String()+" "+gvk.Kind] = kind
		}
	}
	return out
}

// TestFields: each field that may refer to an object has a rule, or says why it needs none; and no rule is for a field that is not there.
func TestFields(t *testing.T) {
	want := map[string]map[string]bool{}
	for _, rule := range Rules {
		for kind, path := range rule.Paths() {
			if want[kind] == nil {
				want[kind] = map[string]bool{}
			}
			want[kind][path] = false
		}
	}
	unused := maps.Clone(Others)
	for kind, goType := range kinds(t) {
		for _, field := range fields(goType, "", nil) {
			field = strings.TrimPrefix(field, ".")
			known := false
			for path := range want[kind] {
				// What is within a map of anything has a path that the types do not know.
				if path == field || strings.HasPrefix(path, field+".") {
					want[kind][path], known = true, true
				}
			}
			for name := range Others {
				if field == name || strings.HasSuffix(field, "."+name) {
					known = true
					delete(unused, name)
				}
			}
			if !known {
				t.Errorf("%s: %s may refer to a Secret or ConfigMap: add a rule to Rules, or to Others why it needs none", kind, field)
			}
		}
	}
	for kind, paths := range want {
		for path, found := range paths {
			// The kinds of node drivers are no Go types; hub/nodedriver/schema compares them with a file.
			if !found && !strings.Contains(kind, "<Driver>") {
				t.Errorf("there is a rule for %s of %s, which has no such field", path, kind)
			}
		}
	}
	for name := range unused {
		t.Errorf("Others has %s, which is no field", name)
	}
}
