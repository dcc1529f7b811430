package nodesync

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

func annotated(labels, taints string) wanted {
	bootstrap := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{rkev1.LabelsAnnotation: labels,
		rkev1.TaintsAnnotation: taints}}}
	return readWanted(&clusterv1.Machine{}, bootstrap, &corev1.Secret{})
}

// Labels come from the role, the delivered configuration and the owner of the machine; the owner has the last word.
func TestReadWantedFromPlan(t *testing.T) {
	bootstrap := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{rkev1.WorkerRoleLabel: "true"}, Annotations: map[string]string{rkev1.LabelsAnnotation: `{"zone":"b"}`},
	}}
	plan := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		rkev1.NodeLabelsAnnotation: `{"zone":"a","disk":"ssd","rke.cattle.io/machine":"uid","kubernetes.io/hostname":"x"}`,
	}}}
	w := readWanted(&clusterv1.Machine{}, bootstrap, plan)
	if diff := cmp.Diff(map[string]string{"zone": "b", "disk": "ssd", "node-role.kubernetes.io/worker": "true"}, w.labels); diff != "" {
		t.Error(diff)
	}
	if len(w.problems) > 0 {
		t.Error(w.problems)
	}
	delete(bootstrap.Labels, rkev1.WorkerRoleLabel)
	if w := readWanted(&clusterv1.Machine{}, bootstrap, &corev1.Secret{}); len(w.labels) != 1 {
		t.Errorf("labels of a machine that is no worker and has no plan: %v", w.labels)
	}
	if w := readWanted(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{rkev1.WorkerRoleLabel: "true"}}}, bootstrap,
		&corev1.Secret{}); w.labels[rkev1.NodeWorkerRoleLabel] != "true" {
		t.Errorf("labels of a worker of a pool: %v", w.labels)
	}
}

func TestReadWanted(t *testing.T) {
	tests := map[string]struct {
		labels, taints string
		keys, wanted   string
		problem        string
	}{
		"nothing": {},
		"labels and taints": {labels: `{"zone":"a","team.example.com/name":"b"}`,
			taints: `[{"key":"gpu","value":"yes","effect":"NoSchedule"},{"key":"gpu","effect":"NoExecute"}]`,
			keys:   "team.example.com/name zone", wanted: "gpu:NoSchedule gpu:NoExecute"},
		"the same taint twice": {taints: `[{"key":"gpu","effect":"NoSchedule"},{"key":"gpu","value":"no","effect":"NoSchedule"}]`,
			wanted: "gpu:NoSchedule"},
		"what the Node is": {labels: `{"kubernetes.io/hostname":"x","zone":"a"}`, keys: "zone",
			problem: "label kubernetes.io/hostname is reserved"},
		"a role of the user's own": {labels: `{"node-role.kubernetes.io/builder":"true"}`, keys: "node-role.kubernetes.io/builder"},
		"a value with a space":     {labels: `{"zone":"a b"}`, problem: `label zone: value "a b"`},
		"a key that is none":       {labels: `{"a/b/c":"d"}`, problem: `label "a/b/c"`},
		"an effect that is none": {taints: `[{"key":"gpu","effect":"Never"}]`,
			problem: `taint gpu: invalid effect "Never": must be NoSchedule, PreferNoSchedule or NoExecute`},
		"a taint without a key":       {taints: `[{"effect":"NoSchedule"}]`, problem: `taint ""`},
		"a taint with a wrong value":  {taints: `[{"key":"gpu","value":"a b","effect":"NoSchedule"}]`, problem: "taint gpu: value"},
		"labels that are not JSON":    {labels: "zone=a", problem: "annotation rke.cattle.io/labels"},
		"taints of the wrong form":    {taints: `{"gpu":"NoSchedule"}`, problem: "annotation rke.cattle.io/taints"},
		"the label of the hub itself": {labels: `{"rke.cattle.io/machine":"x"}`, problem: "rke.cattle.io/machine"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := annotated(tc.labels, tc.taints)
			if got := strings.Join(syncedOf(w).Labels, " "); got != tc.keys {
				t.Errorf("labels: got %q", got)
			}
			var taints []string
			for _, taint := range w.taints {
				taints = append(taints, taintKey(taint))
			}
			if got := strings.Join(taints, " "); got != tc.wanted {
				t.Errorf("taints: got %q", got)
			}
			if got := strings.Join(w.problems, "; "); !strings.Contains(got, tc.problem) || tc.problem == "" && got != "" {
				t.Errorf("problems: got %q", got)
			}
		})
	}
}

// A Node goes through the life of a pool's labels and taints. What others have set stays all the time, and what is right is not written.
func TestSyncToNode(t *testing.T) {
	writes := 0
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelHostname: "n", "own": "yes",
		"zone": "a"}}}
	lost := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{}}
	node.Spec.Taints = []corev1.Taint{lost}
	remote := fake.NewClientBuilder().WithObjects(node).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, obj, p, opts...)
		},
	}).Build()
	steps := []struct {
		what           string
		labels, taints string
		want           map[string]string
		wantTaints     string
		writes         int
	}{
		{"labels that the kubelet has set already", `{"zone":"a"}`, "", map[string]string{"zone": "a"}, "", 1},
		{"again", `{"zone":"a"}`, "", map[string]string{"zone": "a"}, "", 0},
		{"another label, and a taint", `{"zone":"b","disk":"ssd"}`, `[{"key":"gpu","value":"1","effect":"NoSchedule"}]`,
			map[string]string{"zone": "b", "disk": "ssd"}, "gpu=1:NoSchedule", 1},
		{"another value of the taint", `{"zone":"b","disk":"ssd"}`, `[{"key":"gpu","value":"2","effect":"NoSchedule"}]`,
			map[string]string{"zone": "b", "disk": "ssd"}, "gpu=2:NoSchedule", 1},
		{"another effect of the taint", `{"zone":"b","disk":"ssd"}`, `[{"key":"gpu","value":"2","effect":"NoExecute"}]`,
			map[string]string{"zone": "b", "disk": "ssd"}, "gpu=2:NoExecute", 1},
		{"one label less", `{"disk":"ssd"}`, `[{"key":"gpu","value":"2","effect":"NoExecute"}]`, map[string]string{"disk": "ssd"},
			"gpu=2:NoExecute", 1},
		{"what nobody can read changes nothing", "disk", "", map[string]string{"disk": "ssd"}, "gpu=2:NoExecute", 0},
		{"nothing", "", "", map[string]string{}, "", 1},
		{"nothing again", "", "", map[string]string{}, "", 0},
	}
	for _, s := range steps {
		writes = 0
		if done, err := patchNode(t.Context(), remote, "n", annotated(s.labels, s.taints)); err != nil || !done {
			t.Fatalf("%s: %v, %v", s.what, done, err)
		}
		got := &corev1.Node{}
		if err := remote.Get(t.Context(), client.ObjectKey{Name: "n"}, got); err != nil {
			t.Fatal(err)
		}
		s.want[corev1.LabelHostname], s.want["own"] = "n", "yes"
		if diff := cmp.Diff(s.want, got.Labels); diff != "" {
			t.Errorf("%s: %s", s.what, diff)
		}
		var taints []string
		for _, taint := range got.Spec.Taints[1:] {
			taints = append(taints, taint.ToString())
		}
		if got.Spec.Taints[0].Key != lost.Key || strings.Join(taints, ",") != s.wantTaints {
			t.Errorf("%s: taints %v", s.what, got.Spec.Taints)
		}
		if writes != s.writes {
			t.Errorf("%s: %d writes", s.what, writes)
		}
	}
	if done, err := patchNode(t.Context(), remote, "gone", wanted{}); err != nil || done {
		t.Errorf("a Node that is gone: %v, %v", done, err)
	}
}

// A Node that a drain has cordoned stays so while the plan Secret says so too. A restored snapshot may show one of which the hub knows
// nothing.
func TestUncordonRestored(t *testing.T) {
	for name, tc := range map[string]struct{ marked, draining, want bool }{
		"cordoned for a drain":                                 {marked: true, draining: true, want: true},
		"cordoned for a drain of a snapshot that was restored": {marked: true},
		"cordoned by a user":                                   {want: true},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Unschedulable: true}}
			plan := &corev1.Secret{}
			if tc.marked {
				metav1.SetMetaDataAnnotation(&node.ObjectMeta, rkev1.DrainCordonedAnnotation, "true")
			}
			if tc.draining {
				metav1.SetMetaDataAnnotation(&plan.ObjectMeta, rkev1.DrainCordonedAnnotation, "true")
			}
			remote := fake.NewClientBuilder().WithObjects(node).Build()
			w := readWanted(&clusterv1.Machine{}, &rkev1.RKEBootstrap{}, plan)
			if _, err := patchNode(t.Context(), remote, "n", w); err != nil {
				t.Fatal(err)
			}
			if err := remote.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
				t.Fatal(err)
			}
			if marked := node.Annotations[rkev1.DrainCordonedAnnotation] != ""; node.Spec.Unschedulable != tc.want ||
				marked != (tc.marked && tc.want) {
				t.Errorf("unschedulable %v, marked %v", node.Spec.Unschedulable, marked)
			}
		})
	}
}
