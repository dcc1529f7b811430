package rollout

// stories are the simulations that are kept as golden logs.
var stories = map[string]func(*story){
	"one-machine-with-all-roles": func(s *story) {
		s.add("a:ecw")
		s.settle("a new cluster of one machine")
		s.spec.Version = 2
		s.settle("its version changes")
		s.spec.Minor++
		s.settle("a manifest of the hub's changes")
	},
	"roles-come-one-after-another": func(s *story) {
		s.add("a:e").at("a").identity = false
		s.settle("an etcd machine registers")
		s.at("a").identity = true
		s.settle("its plan Secret is made")
		s.add("b:c")
		s.settle("a control plane machine registers")
		s.add("c:w")
		s.settle("a worker registers")
	},
	"three-servers-and-two-workers": func(s *story) {
		s.add("a:ecw", "b:ecw", "c:ecw", "v:w", "w:w")
		s.settle("a new cluster of five machines")
		s.spec.Version = 2
		s.settle("its version changes")
	},
	"separate-roles-change-with-concurrency": func(s *story) {
		s.spec.controlPlane, s.spec.worker = "2", "50%"
		s.run("e1:e", "e2:e", "e3:e", "c1:c", "c2:c", "c3:c", "w1:w", "w2:w", "w3:w")
		s.spec.Version = 2
		s.settle("the version of a cluster with separate roles changes")
	},
	"separate-roles-come-up": func(s *story) {
		s.add("e1:e", "e2:e", "e3:e", "c1:c", "c2:c", "w1:w", "w2:w")
		s.settle("a new cluster with separate roles")
	},
	"a-plan-fails": func(s *story) {
		s.spec.Bad = "install"
		s.add("a:ecw", "b:w")
		s.settle("the first machine fails")
		s.spec.Bad = ""
		s.settle("the cluster's author corrects the configuration")
	},
	"upgrade-with-a-failing-server": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec", "v:w", "w:w")
		s.spec.Version, s.spec.Bad = 2, "start"
		s.settle("a version that does not start")
		s.spec.Bad = ""
		s.settle("the configuration is corrected")
	},
	"upgrade-with-a-failing-worker": func(s *story) {
		s.run("a:ec", "w1:w", "w2:w", "w3:w")
		s.spec.Version = 2
		s.title("the version changes, and the disk of the first worker is full")
		s.until("at the workers", func() bool { return s.at("w1").work != nil })
		bad := *s.at("w1").work
		bad.Bad = "install"
		s.at("w1").work, s.at("w1").delivered = &bad, &bad
		s.settle("the worker fails")
	},
	"a-new-worker-comes-while-a-server-fails": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec", "w:w")
		s.spec.Restarted, s.spec.Bad = 1, "start"
		s.settle("a configuration that does not start")
		s.add("x:w")
		s.settle("a worker is added meanwhile; its plan is as bad as the others'")
	},
	"a-dead-server-holds-up-changes-but-no-new-worker": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec", "w:w")
		s.at("c").power = false
		s.settle("a server dies")
		s.spec.Drained = 1
		s.add("x:w")
		s.settle("the configuration changes and a worker is added")
		s.at("c").power, s.at("c").startLeft = true, 1
		s.settle("the server is back")
	},
	"the-init-node-is-deleted-before-it-has-a-plan": func(s *story) {
		s.add("a:ecw", "b:ecw").at("a").provisioned = false
		s.at("b").provisioned = false
		s.settle("two machines without infrastructure")
		s.at("a").deleting, s.at("b").provisioned = true, true
		s.settle("the first is deleted, the second gets its infrastructure")
	},
	"the-init-node-is-deleted-while-it-starts": func(s *story) {
		s.add("a:ecw", "b:ecw")
		s.title("two machines; the first is deleted while its agent applies the plan")
		s.until("at work", func() bool { return s.at("a").work != nil })
		s.at("a").deleting = true
		s.settle("it is deleted")
	},
	"the-init-node-is-deleted-while-another-joins": func(s *story) {
		s.add("a:ecw", "b:ecw", "c:ecw")
		s.promoteLate = 3
		s.title("three machines; the first is deleted while the second is a learner")
		s.until("a learner", func() bool { return s.etcd["b"] == MemberLearner })
		s.at("a").deleting = true
		s.settle("it is deleted")
	},
	"the-init-node-is-deleted-at-rest": func(s *story) {
		s.run("a:ecw", "b:ecw", "c:ecw")
		s.at("a").deleting = true
		s.settle("the init node of a cluster of three is deleted")
	},
	"the-init-node-is-deleted-during-an-upgrade": func(s *story) {
		s.run("a:ecw", "b:ecw", "c:ecw", "w:w")
		s.spec.Version = 2
		s.title("the version changes")
		s.until("changed", func() bool { return s.at("b").work != nil })
		s.at("a").deleting = true
		s.settle("the init node is deleted while the second server restarts")
	},
	"the-init-node-dies-and-is-replaced": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec")
		s.at("a").power = false
		s.settle("the init node dies")
		s.at("a").deleting = true
		s.add("d:ec")
		s.settle("its health check has it replaced")
	},
	"all-of-etcd-goes-and-a-new-machine-comes": func(s *story) {
		s.run("a:ecw", "b:ecw")
		delete(s.hosts, "a")
		delete(s.hosts, "b")
		delete(s.etcd, "a")
		s.add("z:ecw")
		s.settle("all machines are gone but one that was never part of the cluster")
	},
	"the-first-machine-never-comes-up": func(s *story) {
		s.add("a:ecw").at("a").agent = false
		s.settle("its agent never checks in")
		s.at("a").deleting = true
		s.add("b:ecw")
		s.settle("it is deleted, and another registers")
	},
	"a-machine-stays-unhealthy": func(s *story) {
		s.run("a:ecw", "b:ecw", "c:ecw")
		s.at("b").ill = true
		s.settle("the scheduler of the second server is broken")
		s.spec.Restarted++
		s.settle("a change restarts all servers, the broken one first")
	},
	"one-dead-member-and-one-unhealthy": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec")
		s.at("b").ill, s.at("c").power = true, false
		s.settle("one server is unhealthy and another dead")
		s.spec.Restarted++
		s.settle("a change would heal the unhealthy one but cost the quorum")
		s.at("c").power, s.at("c").startLeft = true, 1
		s.settle("the dead one is back")
	},
	"no-network-plugin-on-any-node": func(s *story) {
		s.run("a:ecw", "b:ecw", "c:ecw")
		for _, h := range s.hosts {
			h.noNetwork = true
		}
		s.settle("the network plugin is broken: no Node is ready, and etcd is well")
		s.spec.Version = 2
		s.settle("the version changes")
	},
	"a-new-cluster-without-a-network-plugin": func(s *story) {
		s.add("a:ecw", "b:ecw", "c:ecw")
		for _, h := range s.hosts {
			h.noNetwork = true
		}
		s.settle("its user installs a network plugin when it is up")
		s.spec.Version = 2
		s.settle("the version changes before")
	},
	"kubelets-stop-and-etcd-goes-on": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec")
		s.at("a").noKubelet, s.at("b").noKubelet = true, true
		s.settle("two kubelets stop to report")
		s.spec.Restarted++
		s.settle("a change")
		s.at("a").noKubelet, s.at("b").noKubelet = false, false
		s.settle("they report again")
	},
	"the-word-of-an-agent-is-old": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec")
		s.at("b").agent, s.at("b").failing = false, []string{probeEtcd, probeKubelet}
		s.settle("an agent dies after it has seen etcd unhealthy, and etcd comes back")
		s.spec.Restarted++
		s.settle("a change")
		s.at("b").agent = true
		s.settle("the agent is back")
	},
	"one-agent-is-silent-and-no-node-has-a-network-plugin": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec")
		s.at("c").agent = false
		for _, h := range s.hosts {
			h.noNetwork = true
		}
		s.settle("an agent dies, and the network plugin of all Nodes")
		s.spec.Version = 2
		s.settle("the version changes")
		s.at("c").agent = true
		s.settle("the agent is back")
	},
	"a-dead-member-does-not-keep-a-sick-one-from-a-change": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec", "d:ec", "e:ec")
		s.at("b").power = false
		s.settle("a member dies")
		s.at("d").ill = true
		s.spec.Restarted++
		s.settle("another is unhealthy, and a change would heal it")
	},
	"paused": func(s *story) {
		s.run("a:ecw").add("b:w")
		s.spec.Minor++
		s.paused = true
		s.settle("a paused cluster with changes")
		s.paused = false
		s.settle("it is resumed")
	},
	"no-plan-can-be-made": func(s *story) {
		s.add("a:ecw", "b:w")
		s.problem = "spec.rkeConfig.machineGlobalConfig.selinux: is a text; it takes true or false"
		s.settle("the configuration has an error")
	},
	"infrastructure-comes-late": func(s *story) {
		s.run("a:ecw").add("b:w").at("b").provisioned = false
		s.settle("a machine is registered before its infrastructure is there")
		s.at("b").provisioned = true
		s.settle("the infrastructure has told what it knows")
	},
	"the-kubelet-lags": func(s *story) {
		s.run("a:ecw")
		s.at("a").nodeInfo = "v1.0.0"
		s.disconnected, s.connected = true, false
		s.at("a").power = false
		s.settle("the Node still reports the old version")
		s.at("a").power, s.disconnected = true, false
		s.settle("it reports the new one")
	},
	"three-to-one": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec", "w:w")
		s.at("b").deleting, s.at("c").deleting = true, true
		s.settle("two of three servers are deleted at once")
	},
	"three-to-one-with-a-dead-one": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec", "w:w")
		s.at("c").power = false
		s.settle("a server dies")
		s.at("b").deleting, s.at("c").deleting = true, true
		s.settle("it is deleted together with one that is well")
	},
	"the-last-member-waits-for-another": func(s *story) {
		s.run("a:ec", "w:w")
		s.at("a").deleting = true
		s.settle("the only etcd machine is deleted")
		s.add("b:ec")
		s.settle("another is added")
	},
	"one-by-one": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec")
		for _, pair := range [][2]string{{"a", "x:ec"}, {"b", "y:ec"}, {"c", "z:ec"}} {
			s.add(pair[1])
			s.settle("a machine is added")
			s.at(pair[0]).deleting = true
			s.settle("and %s is deleted", pair[0])
		}
	},
	"scale-down-during-an-upgrade": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec", "w1:w", "w2:w", "w3:w")
		s.spec.Version = 2
		s.title("the version changes")
		s.until("at the second server", func() bool { return s.at("b").work != nil })
		s.at("c").deleting, s.at("w1").deleting = true, true
		s.settle("a server and a worker are deleted meanwhile")
	},
	"scale-up-during-an-upgrade": func(s *story) {
		s.run("a:ec", "b:ec", "w1:w", "w2:w")
		s.spec.Version = 2
		s.title("the version changes")
		s.until("at the first server", func() bool { return s.at("a").work != nil })
		s.add("c:ec", "w3:w")
		s.settle("a server and a worker are added meanwhile")
	},
	"the-version-changes-again-during-an-upgrade": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec", "w:w")
		s.spec.Version = 2
		s.title("the version changes")
		s.until("at the second server", func() bool { return s.at("b").work != nil })
		s.spec.Version = 3
		s.settle("it changes again")
	},
	"drain-with-hooks": func(s *story) {
		s.spec.drain, s.spec.hooks = true, true
		s.run("a:ec", "b:ec", "c:ec", "w1:w", "w2:w")
		s.hookLate = 2
		s.spec.Version = 2
		s.settle("the version changes; somebody wants to be asked before and after each drain")
	},
	"drain-of-a-single-machine": func(s *story) {
		s.spec.drain, s.spec.hooks = true, true
		s.run("a:ecw")
		s.spec.Version = 2
		s.settle("a single machine has nowhere to drain to, but its hooks are asked")
	},
	"a-drain-is-given-up": func(s *story) {
		s.spec.drain = true
		s.run("a:ec", "w1:w", "w2:w")
		s.hookLate = 5
		s.spec.Drained = 1
		s.title("a change needs a drain")
		s.until("draining", func() bool { return s.at("w1").drain.Requested != "" })
		s.spec.Drained = 0
		s.settle("the change is taken back while the first worker is drained")
	},
	"a-drain-does-not-get-on": func(s *story) {
		s.spec.drain = true
		s.run("a:ec", "w1:w", "w2:w")
		s.spec.Drained = 1
		s.title("a change needs a drain")
		s.until("at the workers", func() bool { return s.at("a").applied.Drained == 1 && s.at("a").drain == (Drain{}) })
		s.hookLate = 1000
		s.until("draining", func() bool { return s.at("w1").drain.Requested != "" })
		s.at("w1").drain.Error = "the disruption budget default/web allows no Pod to be evicted: web-0"
		s.settle("a disruption budget is in the way")
		s.hookLate, s.at("w1").drainLeft, s.at("w1").drain.Error = 0, 0, ""
		s.settle("the budget is raised")
	},
	"a-configuration-change-that-restarts-nothing": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec", "w1:w", "w2:w")
		s.spec.Minor++
		s.settle("all machines get it at once")
	},
	"a-restart-needs-no-drain": func(s *story) {
		s.spec.drain = true
		s.run("a:ec", "w1:w", "w2:w")
		s.spec.Restarted++
		s.settle("a change restarts the distribution, which workloads do not notice")
	},
	"the-hub-is-killed-at-each-step": func(s *story) {
		s.spec.drain = true
		s.run("a:ec", "b:ec", "c:ec", "w1:w", "w2:w")
		s.spec.Version = 2
		s.title("the hub writes once before it is killed, again and again")
		s.limit = 1
		s.settle("the version changes")
		s.limit = -1
		s.settle("the hub lives")
	},
	"the-connection-is-lost-during-an-upgrade": func(s *story) {
		s.spec.drain = true
		s.run("a:ec", "b:ec", "c:ec", "w1:w", "w2:w")
		s.spec.Version = 2
		s.title("the version changes")
		s.until("at the second server", func() bool { return s.at("b").work != nil })
		s.disconnected = true
		s.settle("the cluster's API is not reached")
		s.disconnected = false
		s.settle("it is reached again")
	},
	"two-deleted-servers-are-replaced": func(s *story) {
		s.run("a:ec", "b:ec", "c:ec")
		s.at("a").deleting, s.at("b").deleting = true, true
		s.add("x:ec", "y:ec")
		s.settle("two of three are replaced at once")
	},
	"a-learner-is-never-promoted": func(s *story) {
		s.run("a:ec").add("b:ec", "c:ec")
		s.promoteLate = 1000
		s.settle("a second and a third server come, and the second stays a learner")
		s.at("b").promoteLeft, s.promoteLate = 0, 0
		s.settle("it is promoted at last")
	},
}
