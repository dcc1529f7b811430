package rollout

// scenarios are the simulations whose logs are golden files.
var scenarios = map[string]func(*scenario){
	"one-machine-with-all-roles": func(s *scenario) {
		s.add("a:ecw")
		s.converge("a new cluster of one machine")
		s.spec.Version = 2
		s.converge("its version changes")
		s.spec.Minor++
		s.converge("a manifest of the hub's changes")
	},
	"roles-come-one-after-another": func(s *scenario) {
		s.add("a:e").host("a").identity = false
		s.converge("an etcd machine registers")
		s.host("a").identity = true
		s.converge("its plan Secret is made")
		s.add("b:c")
		s.converge("a control plane machine registers")
		s.add("c:w")
		s.converge("a worker registers")
	},
	"three-servers-and-two-workers": func(s *scenario) {
		s.add("a:ecw", "b:ecw", "c:ecw", "v:w", "w:w")
		s.converge("a new cluster of five machines")
		s.spec.Version = 2
		s.converge("its version changes")
	},
	"separate-roles-change-with-concurrency": func(s *scenario) {
		s.spec.controlPlane, s.spec.worker = "2", "50%"
		s.addRunning("e1:e", "e2:e", "e3:e", "c1:c", "c2:c", "c3:c", "w1:w", "w2:w", "w3:w")
		s.spec.Version = 2
		s.converge("the version of a cluster with separate roles changes")
	},
	"separate-roles-come-up": func(s *scenario) {
		s.add("e1:e", "e2:e", "e3:e", "c1:c", "c2:c", "w1:w", "w2:w")
		s.converge("a new cluster with separate roles")
	},
	"a-plan-fails": func(s *scenario) {
		s.spec.Bad = "install"
		s.add("a:ecw", "b:w")
		s.converge("the first machine fails")
		s.spec.Bad = ""
		s.converge("the cluster's author corrects the configuration")
	},
	"upgrade-with-a-failing-server": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "v:w", "w:w")
		s.spec.Version, s.spec.Bad = 2, "start"
		s.converge("a version that does not start")
		s.spec.Bad = ""
		s.converge("the configuration is corrected")
	},
	"upgrade-with-a-failing-worker": func(s *scenario) {
		s.addRunning("a:ec", "w1:w", "w2:w", "w3:w")
		s.spec.Version = 2
		s.title("the version changes, and the disk of the first worker is full")
		s.runUntil("at the workers", func() bool { return s.host("w1").attempt != nil })
		bad := *s.host("w1").attempt
		bad.Bad = "install"
		s.host("w1").attempt, s.host("w1").delivered = &bad, &bad
		s.converge("the worker fails")
	},
	"a-new-worker-comes-while-a-server-fails": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "w:w")
		s.spec.Restarted, s.spec.Bad = 1, "start"
		s.converge("a configuration that does not start")
		s.add("x:w")
		s.converge("a worker is added meanwhile; its plan is as bad as the others'")
	},
	"a-dead-server-holds-up-changes-but-no-new-worker": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "w:w")
		s.host("c").power = false
		s.converge("a server dies")
		s.spec.Drained = 1
		s.add("x:w")
		s.converge("the configuration changes and a worker is added")
		s.host("c").power, s.host("c").startLeft = true, 1
		s.converge("the server is back")
	},
	"the-init-node-is-deleted-before-it-has-a-plan": func(s *scenario) {
		s.add("a:ecw", "b:ecw").host("a").provisioned = false
		s.host("b").provisioned = false
		s.converge("two machines without infrastructure")
		s.host("a").deleting, s.host("b").provisioned = true, true
		s.converge("the first is deleted, the second gets its infrastructure")
	},
	"the-init-node-is-deleted-while-it-starts": func(s *scenario) {
		s.add("a:ecw", "b:ecw")
		s.title("two machines; the first is deleted while its agent applies the plan")
		s.runUntil("at work", func() bool { return s.host("a").attempt != nil })
		s.host("a").deleting = true
		s.converge("it is deleted")
	},
	"the-init-node-is-deleted-while-another-joins": func(s *scenario) {
		s.add("a:ecw", "b:ecw", "c:ecw")
		s.promoteDelay = 3
		s.title("three machines; the first is deleted while the second is a learner")
		s.runUntil("a learner", func() bool { return s.etcd["b"] == MemberLearner })
		s.host("a").deleting = true
		s.converge("it is deleted")
	},
	"the-init-node-is-deleted-at-rest": func(s *scenario) {
		s.addRunning("a:ecw", "b:ecw", "c:ecw")
		s.host("a").deleting = true
		s.converge("the init node of a cluster of three is deleted")
	},
	"the-init-node-is-deleted-during-an-upgrade": func(s *scenario) {
		s.addRunning("a:ecw", "b:ecw", "c:ecw", "w:w")
		s.spec.Version = 2
		s.title("the version changes")
		s.runUntil("changed", func() bool { return s.host("b").attempt != nil })
		s.host("a").deleting = true
		s.converge("the init node is deleted while the second server restarts")
	},
	"the-init-node-dies-and-is-replaced": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec")
		s.host("a").power = false
		s.converge("the init node dies")
		s.host("a").deleting = true
		s.add("d:ec")
		s.converge("its health check has it replaced")
	},
	"all-of-etcd-goes-and-a-new-machine-comes": func(s *scenario) {
		s.addRunning("a:ecw", "b:ecw")
		delete(s.hosts, "a")
		delete(s.hosts, "b")
		delete(s.etcd, "a")
		s.add("z:ecw")
		s.converge("all machines are gone but one that was never part of the cluster")
	},
	"the-first-machine-never-comes-up": func(s *scenario) {
		s.add("a:ecw").host("a").agent = false
		s.converge("its agent never checks in")
		s.host("a").deleting = true
		s.add("b:ecw")
		s.converge("it is deleted, and another registers")
	},
	"a-machine-stays-unhealthy": func(s *scenario) {
		s.addRunning("a:ecw", "b:ecw", "c:ecw")
		s.host("b").unhealthy = true
		s.converge("the scheduler of the second server is broken")
		s.spec.Restarted++
		s.converge("a change restarts all servers, the broken one first")
	},
	"one-dead-member-and-one-unhealthy": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec")
		s.host("b").unhealthy, s.host("c").power = true, false
		s.converge("one server is unhealthy and another dead")
		s.spec.Restarted++
		s.converge("a change would heal the unhealthy one but cost the quorum")
		s.host("c").power, s.host("c").startLeft = true, 1
		s.converge("the dead one is back")
	},
	"no-network-plugin-on-any-node": func(s *scenario) {
		s.addRunning("a:ecw", "b:ecw", "c:ecw")
		for _, h := range s.hosts {
			h.noNetwork = true
		}
		s.converge("the network plugin is broken: no Node is ready, and etcd is well")
		s.spec.Version = 2
		s.converge("the version changes")
	},
	"a-new-cluster-without-a-network-plugin": func(s *scenario) {
		s.add("a:ecw", "b:ecw", "c:ecw")
		for _, h := range s.hosts {
			h.noNetwork = true
		}
		s.converge("its user installs a network plugin when it is up")
		s.spec.Version = 2
		s.converge("the version changes before")
	},
	"kubelets-stop-and-etcd-goes-on": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec")
		s.host("a").noKubelet, s.host("b").noKubelet = true, true
		s.converge("two kubelets stop to report")
		s.spec.Restarted++
		s.converge("a change")
		s.host("a").noKubelet, s.host("b").noKubelet = false, false
		s.converge("they report again")
	},
	"the-word-of-an-agent-is-old": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec")
		s.host("b").agent, s.host("b").failing = false, []string{probeEtcd, probeKubelet}
		s.converge("an agent dies after it has seen etcd unhealthy, and etcd comes back")
		s.spec.Restarted++
		s.converge("a change")
		s.host("b").agent = true
		s.converge("the agent is back")
	},
	"one-agent-is-silent-and-no-node-has-a-network-plugin": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec")
		s.host("c").agent = false
		for _, h := range s.hosts {
			h.noNetwork = true
		}
		s.converge("an agent dies, and the network plugin of all Nodes")
		s.spec.Version = 2
		s.converge("the version changes")
		s.host("c").agent = true
		s.converge("the agent is back")
	},
	"a-dead-member-does-not-keep-a-sick-one-from-a-change": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "d:ec", "e:ec")
		s.host("b").power = false
		s.converge("a member dies")
		s.host("d").unhealthy = true
		s.spec.Restarted++
		s.converge("another is unhealthy, and a change would heal it")
	},
	"paused": func(s *scenario) {
		s.addRunning("a:ecw").add("b:w")
		s.spec.Minor++
		s.paused = true
		s.converge("a paused cluster with changes")
		s.paused = false
		s.converge("it is resumed")
	},
	"no-plan-can-be-made": func(s *scenario) {
		s.add("a:ecw", "b:w")
		s.problem = "spec.rkeConfig.machineGlobalConfig.selinux: is a text; it takes true or false"
		s.converge("the configuration has an error")
	},
	"infrastructure-comes-late": func(s *scenario) {
		s.addRunning("a:ecw").add("b:w").host("b").provisioned = false
		s.converge("a machine is registered before its infrastructure is there")
		s.host("b").provisioned = true
		s.converge("the infrastructure has told what it knows")
	},
	"the-kubelet-lags": func(s *scenario) {
		s.addRunning("a:ecw")
		s.host("a").nodeInfo = "v1.0.0"
		s.disconnected, s.connected = true, false
		s.host("a").power = false
		s.converge("the Node still reports the old version")
		s.host("a").power, s.disconnected = true, false
		s.converge("it reports the new one")
	},
	"three-to-one": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "w:w")
		s.host("b").deleting, s.host("c").deleting = true, true
		s.converge("two of three servers are deleted at once")
	},
	"three-to-one-with-a-dead-one": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "w:w")
		s.host("c").power = false
		s.converge("a server dies")
		s.host("b").deleting, s.host("c").deleting = true, true
		s.converge("it is deleted together with one that is well")
	},
	"the-last-member-waits-for-another": func(s *scenario) {
		s.addRunning("a:ec", "w:w")
		s.host("a").deleting = true
		s.converge("the only etcd machine is deleted")
		s.add("b:ec")
		s.converge("another is added")
	},
	"one-by-one": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec")
		for _, pair := range [][2]string{{"a", "x:ec"}, {"b", "y:ec"}, {"c", "z:ec"}} {
			s.add(pair[1])
			s.converge("a machine is added")
			s.host(pair[0]).deleting = true
			s.converge("and %s is deleted", pair[0])
		}
	},
	"scale-down-during-an-upgrade": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "w1:w", "w2:w", "w3:w")
		s.spec.Version = 2
		s.title("the version changes")
		s.runUntil("at the second server", func() bool { return s.host("b").attempt != nil })
		s.host("c").deleting, s.host("w1").deleting = true, true
		s.converge("a server and a worker are deleted meanwhile")
	},
	"scale-up-during-an-upgrade": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "w1:w", "w2:w")
		s.spec.Version = 2
		s.title("the version changes")
		s.runUntil("at the first server", func() bool { return s.host("a").attempt != nil })
		s.add("c:ec", "w3:w")
		s.converge("a server and a worker are added meanwhile")
	},
	"the-version-changes-again-during-an-upgrade": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "w:w")
		s.spec.Version = 2
		s.title("the version changes")
		s.runUntil("at the second server", func() bool { return s.host("b").attempt != nil })
		s.spec.Version = 3
		s.converge("it changes again")
	},
	"drain-with-hooks": func(s *scenario) {
		s.spec.drain, s.spec.hooks = true, true
		s.addRunning("a:ec", "b:ec", "c:ec", "w1:w", "w2:w")
		s.hookDelay = 2
		s.spec.Version = 2
		s.converge("the version changes; somebody wants to be asked before and after each drain")
	},
	"drain-of-a-single-machine": func(s *scenario) {
		s.spec.drain, s.spec.hooks = true, true
		s.addRunning("a:ecw")
		s.spec.Version = 2
		s.converge("a single machine has nowhere to drain to, but its hooks are asked")
	},
	"a-drain-is-given-up": func(s *scenario) {
		s.spec.drain = true
		s.addRunning("a:ec", "w1:w", "w2:w")
		s.hookDelay = 5
		s.spec.Drained = 1
		s.title("a change needs a drain")
		s.runUntil("draining", func() bool { return s.host("w1").drain.Requested != "" })
		s.spec.Drained = 0
		s.converge("the change is taken back while the first worker is drained")
	},
	"a-drain-does-not-get-on": func(s *scenario) {
		s.spec.drain = true
		s.addRunning("a:ec", "w1:w", "w2:w")
		s.spec.Drained = 1
		s.title("a change needs a drain")
		s.runUntil("at the workers", func() bool { return s.host("a").applied.Drained == 1 && s.host("a").drain == (Drain{}) })
		s.hookDelay = 1000
		s.runUntil("draining", func() bool { return s.host("w1").drain.Requested != "" })
		s.host("w1").drain.Error = "the disruption budget default/web allows no Pod to be evicted: web-0"
		s.converge("a disruption budget is in the way")
		s.hookDelay, s.host("w1").drainLeft, s.host("w1").drain.Error = 0, 0, ""
		s.converge("the budget is raised")
	},
	"a-configuration-change-that-restarts-nothing": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec", "w1:w", "w2:w")
		s.spec.Minor++
		s.converge("all machines get it at once")
	},
	"a-restart-needs-no-drain": func(s *scenario) {
		s.spec.drain = true
		s.addRunning("a:ec", "w1:w", "w2:w")
		s.spec.Restarted++
		s.converge("a change restarts the distribution, which workloads do not notice")
	},
	"the-hub-is-killed-at-each-step": func(s *scenario) {
		s.spec.drain = true
		s.addRunning("a:ec", "b:ec", "c:ec", "w1:w", "w2:w")
		s.spec.Version = 2
		s.title("the hub writes once before it is killed, again and again")
		s.maxWrites = 1
		s.converge("the version changes")
		s.maxWrites = -1
		s.converge("the hub lives")
	},
	"the-connection-is-lost-during-an-upgrade": func(s *scenario) {
		s.spec.drain = true
		s.addRunning("a:ec", "b:ec", "c:ec", "w1:w", "w2:w")
		s.spec.Version = 2
		s.title("the version changes")
		s.runUntil("at the second server", func() bool { return s.host("b").attempt != nil })
		s.disconnected = true
		s.converge("the cluster's API is not reached")
		s.disconnected = false
		s.converge("it is reached again")
	},
	"two-deleted-servers-are-replaced": func(s *scenario) {
		s.addRunning("a:ec", "b:ec", "c:ec")
		s.host("a").deleting, s.host("b").deleting = true, true
		s.add("x:ec", "y:ec")
		s.converge("two of three are replaced at once")
	},
	"a-learner-is-never-promoted": func(s *scenario) {
		s.addRunning("a:ec").add("b:ec", "c:ec")
		s.promoteDelay = 1000
		s.converge("a second and a third server come, and the second stays a learner")
		s.host("b").promoteLeft, s.promoteDelay = 0, 0
		s.converge("it is promoted at last")
	},
}
