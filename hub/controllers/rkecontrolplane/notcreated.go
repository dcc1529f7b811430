package rkecontrolplane

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/message"
	"github.com/drover-dev/drover/hub/util/predicates"
)

// maxCreationFailure bounds what a message quotes of a failure, in bytes.
const maxCreationFailure = 512

// creationFailures are the reasons for which Cluster API has no further Machine of a MachineSet.
var creationFailures = []string{
	clusterv1.PreflightCheckFailedV1Beta1Reason, clusterv1.BootstrapTemplateCloningFailedV1Beta1Reason,
	clusterv1.InfrastructureTemplateCloningFailedV1Beta1Reason, clusterv1.MachineCreationFailedV1Beta1Reason,
}

// deploymentChanged passes updates of a MachineDeployment's specification, and of why its Machines cannot be created.
var deploymentChanged = predicates.OnUpdate(func(before, after *clusterv1.MachineDeployment) bool {
	return before.Generation != after.Generation || creationFailure(before) != creationFailure(after)
})

// creationFailure is why Cluster API could not create a Machine of a MachineDeployment, such as a webhook of the infrastructure provider
// that refuses it, or a quota; empty if it could. Nothing else but Events and a log has it: the condition is one of the earlier contract,
// and mirrors that of the newest MachineSet.
func creationFailure(d *clusterv1.MachineDeployment) string {
	for _, c := range d.GetV1Beta1Conditions() {
		if c.Type == clusterv1.MachineSetReadyV1Beta1Condition && c.Status == corev1.ConditionFalse &&
			slices.Contains(creationFailures, c.Reason) {
			return message.Bound(generatedName(d).ReplaceAllString(c.Message, `"`+d.Name+`-..."`), maxCreationFailure)
		}
	}
	return ""
}

// maxMachineName is the length to which Cluster API cuts the name of a Machine, before the characters that it makes up.
const maxMachineName = 58

// namingVariable matches what Cluster API replaces in a template for names, in which regexp.QuoteMeta has escaped the braces.
var namingVariable = regexp.MustCompile(`\\\{\\\{.*?\\\}\\\}`)

// generatedName matches names of Machines of a MachineDeployment, with which their templates are cloned. Each retry has another one: as
// part of a message, it would cause a write for each. A pool with a limit for names has a template for them, and long names are cut.
func generatedName(d *clusterv1.MachineDeployment) *regexp.Regexp {
	const random = `[a-z0-9]{5}`
	pattern := regexp.QuoteMeta(d.Name) + "-" + random + "-" + random
	switch naming, most := regexp.QuoteMeta(d.Spec.MachineNaming.Template), min(len(d.Name), maxMachineName); {
	case naming != "":
		pattern = strings.ReplaceAll(naming, regexp.QuoteMeta("{{ .random }}"), random)
		pattern = namingVariable.ReplaceAllString(pattern, `[a-z0-9.-]+`)
	case len(d.Name)+len("-abcde-abcde") > maxMachineName+len("abcde"):
		pattern = fmt.Sprintf("%s[a-z0-9-]{%d}", regexp.QuoteMeta(d.Name[:most]), maxMachineName+len("abcde")-most)
	}
	return regexp.MustCompile(`"` + pattern + `"`)
}

// notCreated says of each MachineDeployment whose Machines cannot be created why.
func notCreated(deployments []clusterv1.MachineDeployment) (failures []string) {
	for i := range deployments {
		if d := &deployments[i]; d.DeletionTimestamp.IsZero() {
			if why := creationFailure(d); why != "" {
				failures = append(failures, fmt.Sprintf("creating Machines of %s failed: %s", d.Name, why))
			}
		}
	}
	slices.Sort(failures)
	return failures
}

// withFailures adds to a wait for machines why Cluster API does not create them.
func (s *scope) withFailures(wait rollout.Wait) rollout.Wait {
	if wait.Reason == rollout.ReasonWaitingForMachines && len(s.notCreated) > 0 {
		wait.Message += "; " + message.JoinNames(s.notCreated, maxNames)
	}
	return wait
}

// withIdle adds to a wait for machines the MachineDeployments that ask for none: by default, "clusterctl generate cluster" has no workers,
// and a new cluster starts with machines of each role.
func (s *scope) withIdle(wait rollout.Wait) rollout.Wait {
	var idle []string
	for i := range s.deployments {
		if d := &s.deployments[i]; d.DeletionTimestamp.IsZero() && ptr.Deref(d.Spec.Replicas, 1) == 0 {
			idle = append(idle, d.Name)
		}
	}
	if wait.Reason == rollout.ReasonWaitingForMachines && len(idle) > 0 {
		slices.Sort(idle)
		wait.Message += "; MachineDeployments with 0 replicas: " + message.JoinNames(idle, maxNames)
	}
	return wait
}
