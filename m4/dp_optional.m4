# DP_OPTIONAL(option, name, VARIABLE, pkg-config module)
# --with-OPTION=yes|no|guess: a hard error only when asked for by name. Sets have_OPTION, VARIABLE_CFLAGS, _LIBS, _VERSION.
AC_DEFUN([DP_OPTIONAL],[
  AC_ARG_WITH([$1],[AS_HELP_STRING([--with-$1],[use $2 (default: when found)])],[],[with_$1=guess])
  have_$1=no
  AS_IF([test "x$with_$1" != xno],[
    PKG_CHECK_MODULES([$3],[$4],[have_$1=yes; $3_VERSION=`$PKG_CONFIG --modversion $4`],[
      AS_IF([test "x$with_$1" != xguess],[AC_MSG_ERROR([$2 was asked for but not found])])
    ])
  ])
  AS_IF([test "x$have_$1" = xyes],[AC_DEFINE([HAVE_$3],[1],[$2 is present])])
  AM_CONDITIONAL([HAVE_$3],[test "x$have_$1" = xyes])
])

# DP_OPTIONAL_PROGRAM(name, VARIABLE): the same for a program; --with-NAME=PATH is taken as it is. Sets have_NAME, VARIABLE.
AC_DEFUN([DP_OPTIONAL_PROGRAM],[
  AC_ARG_WITH([$1],[AS_HELP_STRING([--with-$1=PATH],[use the program $1 (default: when found)])],[],[with_$1=guess])
  AS_CASE([$with_$1],[no],[$2=],[yes|guess],[AC_PATH_PROG([$2],[$1])],[AC_PATH_PROG([$2],[$with_$1])])
  AS_IF([test -z "$$2" && test "x$with_$1" != xguess && test "x$with_$1" != xno],
        [AC_MSG_ERROR([$1 was asked for but not found])])
  AS_IF([test -n "$$2"],[have_$1=yes],[have_$1=no])
  AC_SUBST([$2])
])
