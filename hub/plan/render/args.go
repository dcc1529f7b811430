package render

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/release"
)

// args are the contents of the distribution's configuration file.
type args map[string]any

// hubArgs are set by the hub alone. A cluster that names one says something that cannot hold on every machine.
var hubArgs = []string{
	"agent-token", "agent-token-file", "cluster-init", "cluster-reset", "cluster-reset-restore-path", "server", "token", "token-file",
}

// list returns the values of a list argument, which may be a single text.
func (a args) list(key string) []string {
	switch v := a[key].(type) {
	case string:
		if v == "" {
			return nil
		}
		return []string{v}
	case []string:
		return v
	}
	return nil
}

// words returns the values of a list argument, apart where several are in one text.
func (a args) words(key string) []string {
	var out []string
	for _, text := range slices.Concat(a.list(key), a.list(key+"+")) {
		out = append(out, rkev1.SplitList(text)...)
	}
	return out
}

// text returns the value of a text argument.
func (a args) text(key string) string {
	s, _ := a[key].(string)
	return s
}

// extend appends values to a list argument.
func (a args) extend(key string, values ...string) {
	if len(values) > 0 {
		a[key] = append(slices.Clone(a.list(key)), values...)
	}
}

// option finds name=value or --name=value in a list of flags for a component; the last one wins, as it does there. Those that are
// appended with a "+" come last.
func (a args) option(key, name string) (string, bool) {
	for _, flag := range slices.Backward(slices.Concat(a.list(key), a.list(key+"+"))) {
		k, v, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		if k == name {
			return v, true
		}
	}
	return "", false
}

// prune removes what is empty.
func (a args) prune() {
	maps.DeleteFunc(a, func(_ string, v any) bool {
		switch v := v.(type) {
		case nil:
			return true
		case string:
			return v == ""
		case []string:
			return len(v) == 0
		}
		return false
	})
}

// mergeArgs takes the arguments that the cluster gives to this machine: defaults, then those for all machines, then those of each
// selector that matches, later ones winning.
func (b *builder) mergeArgs() {
	b.args, b.all, b.fields = args{}, args{}, map[string]string{}
	if b.Cluster.Release.Assumed != "" {
		b.problems.doubt("spec.kubernetesVersion", "%q %s", b.Cluster.Release.Version, b.Cluster.Release.Assumed)
	}
	if b.Cluster.Release.Runtime == release.RKE2 {
		b.set("cni", "calico")
	}
	b.merge("spec.rkeConfig.machineGlobalConfig", b.Cluster.Spec.MachineGlobalConfig.Data)
	for i, selector := range b.Cluster.Spec.MachineSelectorConfig {
		field := fmt.Sprintf("spec.rkeConfig.machineSelectorConfig[%d]", i)
		if b.selects(field, selector.MachineLabelSelector) {
			b.merge(field+".config", selector.Config.Data)
		}
	}
	b.dataDir = b.Cluster.names().DataDir
	if dir := b.args.text("data-dir"); dir != "" {
		if !path.IsAbs(dir) {
			b.problems.fail(b.fieldOf("data-dir"), "must be an absolute path, got %q", dir)
		}
		b.dataDir = dir
	}
	if dir := string(b.Cluster.Spec.DataDirectories.K8sDistro); dir != "" {
		b.dataDir = dir
		b.args["data-dir"] = dir
	}
}

// merge puts what the release accepts on this machine into the arguments. What no node of the release accepts is left out with a
// warning, unless the release itself is not well known; a value of the wrong type is fatal, since nobody can tell what was meant.
func (b *builder) merge(field string, values map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		at := field + "." + key
		if slices.Contains(hubArgs, key) {
			b.problems.warn(at, "is set by the hub for each machine and was left out")
			continue
		}
		t, known := b.Cluster.Release.Arg(key, true)
		switch {
		case known:
		case b.Cluster.Release.Assumed == "":
			b.problems.warn(at, "is no argument of %s %s and was left out", b.Cluster.Release.Runtime, b.Cluster.Release.Version)
			continue
		default:
			b.problems.doubt(at, "is no known argument of %s %s and was handed on as it is", b.Cluster.Release.Runtime, b.Cluster.Release.Version)
			t = release.Any
		}
		value := values[key]
		if value == nil {
			delete(b.args, key)
			delete(b.all, key)
			continue
		}
		value, err := coerce(t, paramContent(key, value))
		if err == nil && key == kubeconfigMode && b.Machine.server() {
			err = b.checkKubeconfigMode(at, values[key])
		}
		if err != nil {
			b.problems.fail(at, "%s", err)
			continue
		}
		b.fields[key] = at
		if t == release.List {
			value = b.appended(key, value)
		}
		b.set(key, value)
	}
}

// appended is a list with what earlier fields have appended by the same name with a "+". A name without it replaces that, too: k3s and RKE2
// do the same with earlier files.
func (b *builder) appended(key string, value any) any {
	if !strings.HasSuffix(key, "+") {
		delete(b.args, key+"+")
		delete(b.all, key+"+")
		return value
	}
	earlier := b.all.list(key)
	if len(earlier) == 0 {
		return value
	}
	return slices.Concat(earlier, args{key: value}.list(key))
}

// set keeps an argument. Agents do not take those of servers, but what runs on them may depend on those.
func (b *builder) set(key string, value any) {
	b.all[key] = value
	_, ofServers := b.Cluster.Release.Arg(key, true)
	if _, here := b.Cluster.Release.Arg(key, b.Machine.server()); here || !ofServers {
		b.args[key] = value
	}
}

// fieldOf is the path of the field that an argument was taken from last.
func (b *builder) fieldOf(key string) string {
	if field, ok := b.fields[key]; ok {
		return field
	}
	return "spec.rkeConfig.machineGlobalConfig." + key
}

// selects reports whether a selector matches the machine's labels; nil matches all.
func (b *builder) selects(field string, selector *metav1.LabelSelector) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		b.problems.fail(field+".machineLabelSelector", "is not a valid selector: %s", err)
		return false
	}
	return s.Matches(labels.Set(b.Machine.Labels))
}
