package cluster

import (
	"cmp"
	"slices"

	"drydock.dev/drydock/apiserverlite/controllers"
	"drydock.dev/drydock/driver"
	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/internal/lab"
	"drydock.dev/drydock/nodesim"
)

// Points lists every place where a component can be killed.
func Points() []lab.Point {
	all := slices.Concat(fakecloud.Points(), controllers.Points(), driver.Points(), nodesim.Points())
	slices.SortFunc(all, func(a, b lab.Point) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.Name, b.Name))
	})
	return all
}
