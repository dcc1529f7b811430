package pool

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

func testCluster() *provisioningv1.Cluster {
	return &provisioningv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-default", Name: "one", UID: "0001"},
		Spec:       provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}},
	}
}

func testPool() *provisioningv1.RKEMachinePool {
	return &provisioningv1.RKEMachinePool{
		Name: "workers", WorkerRole: true, Quantity: ptr.To[int32](2),
		MachineConfigRef: &provisioningv1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "TestMachineTemplate",
			Name: "t"},
	}
}

func deploymentOf(t *testing.T, cluster *provisioningv1.Cluster, p *provisioningv1.RKEMachinePool) *clusterv1.MachineDeployment {
	t.Helper()
	md, err := MachineDeployment(cluster, p, Templates{})
	if err != nil {
		t.Fatal(err)
	}
	return md
}

// TestMachines: what the machines of a pool are told to be, whatever labels the user has.
func TestMachines(t *testing.T) {
	p := testPool()
	p.EtcdRole, p.ControlPlaneRole, p.MachineOS = true, true, "linux"
	p.Labels = map[string]string{"team": "a", "rke.cattle.io/etcd-role": "no", "cluster.x-k8s.io/cluster-name": "other",
		"cattle.io/os": "plan9"}
	p.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}}
	p.HostnameLengthLimit = 20
	got := deploymentOf(t, testCluster(), p).Spec.Template.ObjectMeta
	want := clusterv1.ObjectMeta{
		Labels: map[string]string{
			"cluster.x-k8s.io/cluster-name": "one", "cluster.x-k8s.io/deployment-name": "one-workers", "cluster.x-k8s.io/control-plane": "",
			"rke.cattle.io/cluster-name": "one", "rke.cattle.io/rke-machine-pool-name": "workers", "rke.cattle.io/etcd-role": "true",
			"rke.cattle.io/control-plane-role": "true", "rke.cattle.io/worker-role": "true", "cattle.io/os": "linux", "team": "a",
		},
		Annotations: map[string]string{
			"rke.cattle.io/labels":                "{\"cattle.io/os\":\"plan9\",\"team\":\"a\"}",
			"rke.cattle.io/taints":                `[{"key":"k","value":"v","effect":"NoSchedule"}]`,
			"rke.cattle.io/hostname-length-limit": "20",
			// Nobody evicts the Pods, so that Cluster API would wait for their volumes for ever.
			"machine.cluster.x-k8s.io/exclude-node-draining":               "true",
			"machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach": "true",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMachineDeployment(t *testing.T) {
	p := testPool()
	p.MachineDeploymentLabels = map[string]string{"a": "b", "rke.cattle.io/cluster-name": "other"}
	p.MachineDeploymentAnnotations = map[string]string{"c": "d", "rke.cattle.io/applied-quantity": "9"}
	p.AutoscalingMinSize, p.AutoscalingMaxSize = ptr.To[int32](1), ptr.To[int32](5)
	p.RollingUpdate = &provisioningv1.RKEMachinePoolRollingUpdate{MaxUnavailable: ptr.To(intstr.FromString("20%"))}
	p.DrainBeforeDelete = true
	p.DrainBeforeDeleteTimeout = &provisioningv1.Duration{Duration: metav1.Duration{Duration: 1500 * time.Millisecond}}
	p.Paused = true
	md := deploymentOf(t, testCluster(), p)
	if md.Name != "one-workers" || md.Labels["a"] != "b" || md.Labels[rkev1.ClusterNameLabel] != "one" {
		t.Errorf("it is called %s and has the labels %v", md.Name, md.Labels)
	}
	if diff := cmp.Diff(map[string]string{
		"c": "d", "rke.cattle.io/applied-quantity": "2", "rke.cattle.io/machine-templates": "",
		"cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "1", "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "5",
		"capacity.cluster-autoscaler.kubernetes.io/labels": "node-role.kubernetes.io/worker=true",
	}, md.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if _, ok := p.MachineDeploymentAnnotations[clusterv1.AutoscalerMinSizeAnnotation]; ok {
		t.Error("the pool itself was changed")
	}
	spec := md.Spec
	if *spec.Replicas != 2 || !*spec.Paused || spec.Deletion.Order != "Oldest" ||
		spec.Rollout.Strategy.RollingUpdate.MaxUnavailable.String() != "20%" {
		t.Errorf("the spec is %+v", spec)
	}
	if got := spec.Template.Spec.Deletion.NodeDrainTimeoutSeconds; got == nil || *got != 2 {
		t.Errorf("the drain is limited to %v seconds", got)
	}
	if got := spec.Template.Spec.Deletion.NodeVolumeDetachTimeoutSeconds; got == nil || *got != 2 {
		t.Errorf("volumes that the drain has left are waited for %v seconds", got)
	}
	if _, excluded := spec.Template.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; excluded {
		t.Error("nodes are not drained")
	}
	if _, excluded := spec.Template.Annotations[clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation]; excluded {
		t.Error("volumes of drained nodes are not waited for")
	}
	if spec.Remediation.MaxInFlight != nil {
		t.Error("workers are replaced one by one")
	}
	p.EtcdRole = true
	if got := deploymentOf(t, testCluster(), p).Spec.Remediation.MaxInFlight; got == nil || got.IntVal != 1 {
		t.Errorf("%v etcd machines are replaced at once", got)
	}
}

func TestQuantity(t *testing.T) {
	for _, tt := range []struct {
		quantity, least *int32
		want            int32
	}{
		{want: 1}, {quantity: ptr.To[int32](0), want: 0}, {quantity: ptr.To[int32](4), least: ptr.To[int32](2), want: 4},
		{least: ptr.To[int32](3), want: 3}, {least: ptr.To[int32](0), want: 1},
	} {
		p := &provisioningv1.RKEMachinePool{Quantity: tt.quantity, AutoscalingMinSize: tt.least}
		if got := p.DesiredQuantity(); got != tt.want {
			t.Errorf("quantity %v, at least %v: got %d, want %d", tt.quantity, tt.least, got, tt.want)
		}
	}
}

// TestHostnameLimit: no limit makes a name longer than itself.
func TestHostnameLimit(t *testing.T) {
	for limit := 10; limit <= 63; limit++ {
		for _, name := range []string{"a", "one", "a-long-name-of-a-cluster-----------x", strings.Repeat("n", 63)} {
			cluster, p := testCluster(), testPool()
			cluster.Name = name
			cluster.Spec.RKEConfig.MachinePoolDefaults.HostnameLengthLimit = limit
			template := deploymentOf(t, cluster, p).Spec.MachineNaming.Template
			made := strings.Replace(template, "{{ .random }}", "abcde", 1)
			if len(made) > limit || made == template || strings.HasPrefix(made, "-") || strings.Contains(made, "--abcde") {
				t.Errorf("limit %d, cluster %s: %q makes %q", limit, name, template, made)
			}
		}
	}
	cluster, p := testCluster(), testPool()
	cluster.Spec.RKEConfig.MachinePoolDefaults.HostnameLengthLimit, p.HostnameLengthLimit = 20, 15
	if got := deploymentOf(t, cluster, p).Spec.MachineNaming.Template; got != "one-worke-{{ .random }}" {
		t.Errorf("the pool's own limit makes %q", got)
	}
	if got := deploymentOf(t, testCluster(), testPool()).Spec.MachineNaming.Template; got != "" {
		t.Errorf("without a limit there is the template %q", got)
	}
}

func TestHealthCheck(t *testing.T) {
	p := testPool()
	if got := HealthCheck(testCluster(), p, true); got != nil {
		t.Errorf("a pool without unhealthyNodeTimeout has %+v", got)
	}
	p.UnhealthyNodeTimeout = &provisioningv1.Duration{Duration: metav1.Duration{Duration: 5 * time.Minute}}
	p.MaxUnhealthy, p.UnhealthyRange = ptr.To("40%"), ptr.To("[1-3]")
	got := HealthCheck(testCluster(), p, true).Spec
	if *got.Checks.NodeStartupTimeoutSeconds != 600 || len(got.Checks.UnhealthyNodeConditions) != 2 ||
		len(got.Checks.UnhealthyMachineConditions) != 0 {
		t.Errorf("it checks %+v", got.Checks)
	}
	for _, c := range got.Checks.UnhealthyNodeConditions {
		if c.Type != corev1.NodeReady || c.Status == corev1.ConditionTrue || *c.TimeoutSeconds != 300 {
			t.Errorf("it checks %+v", c)
		}
	}
	if limit := got.Remediation.TriggerIf; limit.UnhealthyLessThanOrEqualTo.String() != "40%" || limit.UnhealthyInRange != "[1-3]" {
		t.Errorf("it acts if %+v", limit)
	}
	// A creation by a node driver may take 30 minutes, for which Cluster API's clock runs.
	p.MachineConfigRef = &provisioningv1.ObjectReference{Kind: "LabConfig", Name: "workers"}
	if got := *HealthCheck(testCluster(), p, true).Spec.Checks.NodeStartupTimeoutSeconds; got != 45*60 {
		t.Errorf("a Node of a node driver's machine has %d s", got)
	}
	p.NodeStartupTimeout, p.MaxUnhealthy = &provisioningv1.Duration{}, ptr.To("2")
	got = HealthCheck(testCluster(), p, true).Spec
	if *got.Checks.NodeStartupTimeoutSeconds != 0 || got.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo.IntVal != 2 {
		t.Errorf("it is %+v", got)
	}
}

func TestScaled(t *testing.T) {
	for _, tt := range []struct {
		name           string
		pool, replicas int32
		applied        string
		want           int32
		scaled         bool
	}{
		{name: "at rest", pool: 3, replicas: 3, applied: "3"},
		{name: "somebody scaled up", pool: 3, replicas: 5, applied: "3", want: 5, scaled: true},
		{name: "somebody scaled to nothing", pool: 3, replicas: 0, applied: "3", want: 0, scaled: true},
		{name: "the pool has changed", pool: 4, replicas: 3, applied: "3"},
		{name: "both have changed: the pool wins", pool: 4, replicas: 5, applied: "3"},
		{name: "written back, not confirmed yet", pool: 5, replicas: 5, applied: "3"},
		{name: "made by somebody else", pool: 3, replicas: 5},
	} {
		p := testPool()
		p.Quantity = ptr.To(tt.pool)
		md := &clusterv1.MachineDeployment{Spec: clusterv1.MachineDeploymentSpec{Replicas: ptr.To(tt.replicas)}}
		md.Annotations = map[string]string{rkev1.AppliedQuantityAnnotation: tt.applied}
		got, scaled := Scaled(p, md)
		if scaled != tt.scaled || scaled && got != tt.want {
			t.Errorf("%s: got %d, %t", tt.name, got, scaled)
		}
	}
}

func template(spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "TestMachineTemplate",
		"metadata": map[string]any{"namespace": "fleet-default", "name": "t", "uid": "1", "generation": int64(1)},
		"spec":     spec, "status": map[string]any{"capacity": map[string]any{"cpu": "2"}},
	}}
	return o
}

func TestClone(t *testing.T) {
	source := template(map[string]any{"template": map[string]any{"spec": map[string]any{"size": "s"}}})
	one, err := Clone(testCluster(), testPool(), source)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(one.GetName(), "one-workers-") || one.GetUID() != "" || one.Object["status"] != nil ||
		one.GetAnnotations()[rkev1.ClonedFromNameAnnotation] != "t" || !cmp.Equal(one.Object["spec"], source.Object["spec"]) {
		t.Errorf("the copy is %+v", one.Object)
	}
	if !UpToDate(one, source) {
		t.Error("the copy is outdated at once")
	}

	shown := source.DeepCopy()
	shown.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"size": "s", "new": "default"}}}
	if !UpToDate(one, shown) {
		t.Error("a new default of the provider replaces machines")
	}
	touched := source.DeepCopy()
	touched.SetUID("2")
	if !UpToDate(one, touched) {
		t.Error("a template that was moved here replaces machines")
	}
	changed := shown.DeepCopy()
	changed.SetGeneration(2)
	if UpToDate(one, changed) {
		t.Error("a change is not seen")
	}
	two, err := Clone(testCluster(), testPool(), changed)
	if err != nil {
		t.Fatal(err)
	}
	if one.GetName() == two.GetName() {
		t.Error("another content has the same name")
	}
	if again, err := Clone(testCluster(), testPool(), source); err != nil || again.GetName() != one.GetName() {
		t.Errorf("the same content has another name: %v %v", again.GetName(), err)
	}
}

func TestBootstrapTemplate(t *testing.T) {
	plain, err := BootstrapTemplate(testCluster(), testPool())
	if err != nil {
		t.Fatal(err)
	}
	p := testPool()
	p.Userdata = &rkev1.Userdata{InlineUserdata: "#cloud-config\n"}
	with, err := BootstrapTemplate(testCluster(), p)
	if err != nil {
		t.Fatal(err)
	}
	if plain.Name == with.Name || with.Spec.Template.Spec.Userdata.InlineUserdata != "#cloud-config\n" ||
		with.Spec.Template.Spec.ClusterName != "one" {
		t.Errorf("%s and %s: %+v", plain.Name, with.Name, with.Spec)
	}
}

func TestRefs(t *testing.T) {
	refs := []TemplateRef{
		RefOf(clusterv1.ContractVersionedObjectReference{APIGroup: "b.io", Kind: "B", Name: "b"}),
		RefOf(clusterv1.ContractVersionedObjectReference{APIGroup: "a.x-k8s.io", Kind: "A", Name: "a.b"}),
	}
	md := &clusterv1.MachineDeployment{}
	if got := ParseRefs(md); len(got) > 0 {
		t.Errorf("no annotation is read as %v", got)
	}
	md.Annotations = map[string]string{rkev1.MachineTemplatesAnnotation: formatRefs(append(refs, refs[0]))}
	if diff := cmp.Diff([]TemplateRef{refs[1], refs[0]}, ParseRefs(md)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*provisioningv1.RKEMachinePool)
		// want are the beginnings of the messages.
		want []string
	}{
		{name: "valid", change: func(p *provisioningv1.RKEMachinePool) {
			p.Labels, p.Taints = map[string]string{"cattle.io/os": "linux", "a.b/c": ""}, []corev1.Taint{{Key: "k", Effect: "NoExecute"}}
		}},
		{name: "template elsewhere", change: func(p *provisioningv1.RKEMachinePool) { p.MachineConfigRef.Namespace = "other" },
			want: []string{`spec.rkeConfig.machinePools[workers].machineConfigRef.namespace is "other": it must be the Cluster's own, "fleet-default"`}},
		{name: "machines of users", change: func(p *provisioningv1.RKEMachinePool) {
			p.MachineConfigRef.APIVersion, p.MachineConfigRef.Kind = "rke.cattle.io/v1", "CustomMachineTemplate"
		}, want: []string{"spec.rkeConfig.machinePools[workers].machineConfigRef names the kind CustomMachineTemplate, whose machines " +
			"register themselves"}},
		{name: "no template", change: func(p *provisioningv1.RKEMachinePool) { p.MachineConfigRef.Kind = "TestMachine" },
			want: []string{`spec.rkeConfig.machinePools[workers].machineConfigRef.kind is "TestMachine": name the kind of a machine template, such as TestMachineTemplate`}},
		{name: "user data of a node driver", change: func(p *provisioningv1.RKEMachinePool) {
			p.MachineConfigRef.APIVersion, p.MachineConfigRef.Kind = "rke-machine-config.cattle.io/v1", "LinodeConfig"
			p.Userdata = &rkev1.Userdata{InlineUserdata: "#cloud-config\n"}
		}, want: []string{"spec.rkeConfig.machinePools[workers].userdata is for machines of Cluster API providers: write the user data into " +
			"the field of the LinodeConfig"}},
		{name: "format of a node driver", change: func(p *provisioningv1.RKEMachinePool) {
			p.MachineConfigRef.APIVersion, p.MachineConfigRef.Kind = "rke-machine-config.cattle.io/v1", "LinodeConfig"
			p.Userdata = &rkev1.Userdata{Format: rkev1.CloudConfigFormat}
		}, want: []string{"spec.rkeConfig.machinePools[workers].userdata"}},
		{name: "script of a node driver", change: func(p *provisioningv1.RKEMachinePool) {
			p.MachineConfigRef.APIVersion, p.MachineConfigRef.Kind = "rke-machine-config.cattle.io/v1", "LinodeConfig"
			p.Userdata = &rkev1.Userdata{Format: rkev1.ScriptFormat}
		}},
		{name: "label of the hub", change: func(p *provisioningv1.RKEMachinePool) {
			p.Labels = map[string]string{"rke.cattle.io/etcd-role": "true"}
		},
			want: []string{"spec.rkeConfig.machinePools[workers].labels: rke.cattle.io/etcd-role is reserved for the hub"}},
		{name: "labels that are none", change: func(p *provisioningv1.RKEMachinePool) {
			p.Labels, p.MachineDeploymentLabels = map[string]string{"a b": "c"}, map[string]string{"a": "b c"}
		}, want: []string{"spec.rkeConfig.machinePools[workers].labels: Invalid value: \"a b\"",
			"spec.rkeConfig.machinePools[workers].machineDeploymentLabels: Invalid value: \"b c\""}},
		{name: "taint that is none", change: func(p *provisioningv1.RKEMachinePool) {
			p.Taints = []corev1.Taint{{Key: "a b", Value: "c d", Effect: "Go"}}
		},
			want: []string{`spec.rkeConfig.machinePools[workers].taints[0].effect is "Go": it must be one of ["NoSchedule" "PreferNoSchedule" "NoExecute"]`,
				`spec.rkeConfig.machinePools[workers].taints[0].key is "a b"`, `spec.rkeConfig.machinePools[workers].taints[0].value is "c d"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := testPool()
			tt.change(p)
			got := Validate(testCluster(), p)
			if len(got) != len(tt.want) {
				t.Fatalf("got %q, want %q", got, tt.want)
			}
			for i, want := range tt.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("got %q, want %q", got[i], want)
				}
			}
		})
	}
}

// TestValidateRoles: the roles that make a machine a server, or a member of etcd, stay those of its pool.
func TestValidateRoles(t *testing.T) {
	servers := testPool()
	servers.EtcdRole, servers.ControlPlaneRole = true, true
	for _, tt := range []struct {
		name         string
		before       *provisioningv1.RKEMachinePool
		etcd, server bool
		want         string
	}{
		{name: "servers", before: servers, etcd: true, server: true},
		{name: "workers", before: testPool()},
		{name: "no etcd any more", before: servers, server: true, want: "machinePools[workers].etcdRole cannot be changed: set it to true;"},
		{name: "no control plane any more", before: servers, etcd: true, want: ".controlPlaneRole cannot be changed: set it to true;"},
		{name: "workers become servers", before: testPool(), server: true, want: ".controlPlaneRole cannot be changed: set it to false;"},
		{name: "workers get etcd", before: testPool(), etcd: true, want: ".etcdRole cannot be changed: set it to false;"},
	} {
		p := testPool()
		p.EtcdRole, p.ControlPlaneRole, p.WorkerRole = tt.etcd, tt.server, false
		got := ValidateRoles(p, deploymentOf(t, testCluster(), tt.before))
		if (got != "") != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
