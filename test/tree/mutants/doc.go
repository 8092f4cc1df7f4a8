// SPDX-License-Identifier: Apache-2.0

// Command mutants shows that the tests can fail. It changes the code in one place at a
// time, without touching the tree, and fails if the tests pass.
//
// Each package lists its mutants in testdata/mutants, one a line:
//
//	DECLARATION: OPERATOR ARGUMENTS: [FOLDER] TEST: EFFECT
//
// DECLARATION is a function, Type.Method, constant or variable of the package. TEST must
// fail, or one of its subtests, as in TestName/subtest; FOLDER is the folder of the test, by
// default the package. EFFECT is what a user would see. The operators are
//
//	skip NAME      does not execute the statement that contains NAME
//	swap NAME      executes that statement after the next one
//	never NAME     makes the condition that contains NAME false
//	always NAME    makes it true
//	set NAME NEW   replaces NAME by NEW
//	return VALUES  returns the values at once
//
// NAME is an identifier, a selector or a literal, and its first use in the declaration;
// NAME#2 is its second use. The condition is the smallest one: an operand of && and ||.
//
// Mutants run on the machine of their author, often as root. Code that ends processes or
// removes files by their names must have none that widens its choice.
package main
