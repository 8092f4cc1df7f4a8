// SPDX-License-Identifier: Apache-2.0

// Package kubectl is the house of "kubectl gpu". It reads API objects and asks agents over HTTP, never
// hardware or the disk of an agent.
//
//	commands   reads with the rights of the user, and prints
//	  pages    the same for a browser
//	  evict    ends pods, and keeps devices for a pod meanwhile; cmd/gpu-room does so by package roomer
//	    lists  the objects of a cluster, page by page
//	      rows   the tables and texts of commands and pages
//	      cordon, doctor
//	        fleet  holders, free devices and misses, by the scheduler's own allocator
//
// Of the driver it imports api, pkg/gpu, and pkg/catalog for models and the label of an offer.
package kubectl
